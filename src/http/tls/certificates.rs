//! Chooses the certificate for a client, by the name that it asks for (RFC 6066 3, SNI) and by the
//! signatures that it can verify.

use std::collections::HashMap;
use std::sync::Arc;

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use webpki::EndEntityCert;

use crate::http::tls::learned::learn_name;
use crate::http::tls::validity;

/// The server's certificates. A client that asks for no name, or for a name that no certificate
/// has, gets the first one.
#[derive(Debug)]
pub(crate) struct Certificates {
    pub(super) all: Vec<Arc<CertifiedKey>>,
    /// The certificates with each name, in lower case; with several, for which there is a choice.
    by_name: HashMap<String, Vec<usize>>,
}

impl Certificates {
    /// There must be at least one.
    pub(crate) fn new(all: Vec<CertifiedKey>) -> Self {
        let mut by_name = HashMap::<_, Vec<usize>>::new();
        if all.len() > 1 {
            for (at, certified) in all.iter().enumerate() {
                for name in names(certified) {
                    by_name.entry(name).or_default().push(at);
                }
            }
        }
        let all = all.into_iter().map(Arc::new).collect();
        Self { all, by_name }
    }

    /// The first name of each certificate, and the second after 1970 at which it ends.
    pub(crate) fn ends(&self) -> Vec<(String, u64)> {
        let ends = self.all.iter().filter_map(|certified| {
            let name = names(certified).into_iter().next().unwrap_or_default();
            Some((name, validity::end(certified.end_entity_cert().ok()?)?))
        });
        ends.collect()
    }

    /// The certificates that have the name, then those that have a `*` in place of its first label
    /// (RFC 9525 6.3).
    pub(crate) fn with_name(&self, name: &str) -> impl Iterator<Item = usize> {
        let exact = self.by_name.get(name);
        let parent = name.split_once('.').map(|(_, parent)| parent);
        let any = parent.and_then(|parent| self.by_name.get(&format!("*.{parent}")));
        exact.into_iter().chain(any).flatten().copied()
    }
}

impl ResolvesServerCert for Certificates {
    /// rustls calls this for every client, also for one that resumes a session.
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello.server_name();
        // RFC 6066 3 forbids the dot of the root, and rustls lets it pass.
        let name = name.map(|name| name.strip_suffix('.').unwrap_or(name));
        learn_name(name);
        let [first, others @ ..] = &self.all[..] else {
            return None;
        };
        if others.is_empty() {
            return Some(Arc::clone(first));
        }
        let with_name = self.with_name(name.unwrap_or_default());
        let mut candidates = with_name.map(|at| &self.all[at]).chain(&self.all);
        let verifies = |certified: &&Arc<CertifiedKey>| {
            let schemes = hello.signature_schemes();
            certified.key.choose_scheme(schemes).is_some()
        };
        Some(Arc::clone(candidates.find(verifies).unwrap_or(first)))
    }
}

/// The host names in a certificate, in lower case.
fn names(certified: &CertifiedKey) -> Vec<String> {
    let own = certified.end_entity_cert().ok();
    let own = own.and_then(|own| EndEntityCert::try_from(own).ok());
    own.map_or(Vec::new(), |own| {
        own.valid_dns_names().map(str::to_ascii_lowercase).collect()
    })
}
