//! What does a handshake cost, full and resumed?
//!
//! 64 clients connect, shake hands by TLS 1.3, send one request with `Connection: close`, read to
//! the end and connect again. In `tls_full` no client keeps a ticket; in `tls_resumed` each keeps
//! its own and resumes by them, on whichever worker the kernel chooses; a handshake of the other
//! kind is a failure. Servers give two tickets to each connection in both questions.
//!
//! prefork and prefork_shared answer by this crate's own TLS; multi_thread and current_threads by
//! hyper over tokio-rustls, with one ticketer of rustls's for all threads. Everywhere it is
//! rustls on ring, X25519, and one key on P-256, made at the start. What differs beside the model:
//! tickets are sealed with AES-256-GCM here and with ChaCha20-Poly1305 by rustls.
//!
//! A client pays more for a full handshake than a server, for a resumed one as much, and here one
//! thread is all clients: the throughput is the driver's. Compare the CPU time.
//!
//! Not measured: TLS 1.2, client certificates, RSA keys, chains of certificates, early data, HTTP/2
//! by ALPN, bulk encryption, how connections are spread, and what an idle session keeps.

#[cfg(feature = "tls")]
use crate::load::{Ask, Handshakes, Tls};
use crate::question::Question;
#[cfg(feature = "tls")]
use crate::server::{App, BODY, Identity};

#[cfg(feature = "tls")]
pub(crate) fn questions() -> Vec<Question> {
    let identity = Identity::new();
    let cases = [
        ("tls_full", Handshakes::Full),
        ("tls_resumed", Handshakes::Resumed),
    ];
    cases
        .map(|(name, handshakes)| {
            let ask = Ask::get("/").expecting(BODY).closing();
            Question::new(name, 64, ask)
                .of_app(App::Private(identity.clone()))
                .within(Tls::trusting(identity.certificate(), handshakes))
        })
        .into()
}

/// None, which is said.
#[cfg(not(feature = "tls"))]
pub(crate) fn questions() -> Vec<Question> {
    eprintln!("tls_full and tls_resumed are left out: built without the feature `tls`");
    Vec::new()
}
