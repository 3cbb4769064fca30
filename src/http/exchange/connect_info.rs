//! The client and its connection, where axum's `ConnectInfo` looks for them.

use crate::http::exchange::message::Request;

/// Adds what `ConnectInfo<SocketAddr>`, `ConnectInfo<Peer>` and `ConnectInfo<ConnectionInfo>`
/// extract. A client on a Unix socket has no `SocketAddr`.
#[cfg(feature = "axum")]
pub(crate) fn add(request: &mut Request) {
    use axum::extract::ConnectInfo;

    use crate::address::Peer;

    let info = request.body().connection().clone();
    let client = info.client();
    let extensions = request.extensions_mut();
    if let Peer::Tcp(address) = client {
        extensions.insert(ConnectInfo(address));
    }
    extensions.insert(ConnectInfo(client));
    extensions.insert(ConnectInfo(info));
}

/// Without axum there is no `ConnectInfo`.
#[cfg(not(feature = "axum"))]
pub(crate) fn add(_request: &mut Request) {}
