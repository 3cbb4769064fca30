//! The parser of certificates and keys, on any bytes.

use super::*;
use crate::fuzz;

#[test]
fn sections() {
    fuzz::check("http-tls-pem-sections", |bytes| {
        let source = Source::memory(bytes);
        for kind in [Kind::Certificate, Kind::ClientCa, Kind::Key] {
            let pem = Pem::read(kind, &source).expect("nothing is read from a file");
            assert!(!pem.is_open_to_others());
            let (certificates, key) = (pem.certificates(), pem.key());
            if let Ok(certificates) = &certificates {
                let sizes: usize = certificates.iter().map(|der| der.len()).sum();
                assert!(!certificates.is_empty() && sizes <= bytes.len());
            }
            if let Ok(key) = &key {
                assert!(key.secret_der().len() <= bytes.len());
            }
            for error in [certificates.err(), key.err()].into_iter().flatten() {
                assert!(error.starts_with(&pem.to_string()), "{error}");
                assert_eq!(error.lines().count(), 1, "{error}");
            }
        }
    });
}
