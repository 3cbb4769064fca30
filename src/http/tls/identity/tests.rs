use std::fs;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use rustls::pki_types::ServerName;
use rustls::server::{Acceptor, ResolvesServerCert};
use rustls::{ClientConfig, ClientConnection, ProtocolVersion, RootCertStore};
use tempfile::TempDir;

use super::*;
use crate::http::tls::learned::Learned;
use crate::http::tls::validity::tests::ocsp_response;

/// A valid certificate and key, and a directory for files.
struct Files {
    dir: TempDir,
    certificate: String,
    key: String,
}

impl Files {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl Fn(&mut CertificateParams)) -> Self {
        let key = KeyPair::generate().expect("random");
        let mut params = CertificateParams::new(["localhost".to_owned()]).expect("a name");
        change(&mut params);
        let certificate = params.self_signed(&key).expect("a key");
        Self {
            dir: tempfile::tempdir().expect("a directory"),
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        }
    }

    fn with_name(name: &str) -> Self {
        Self::with(|params| {
            *params = CertificateParams::new([name.to_owned()]).expect("a name");
        })
    }

    fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::write(&path, bytes).expect("writable");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("it is ours");
        path
    }

    fn good(&self) -> Tls {
        Tls::new()
            .certificate_file(self.file("good.pem", &self.certificate))
            .key_file(self.file("good.key", &self.key))
    }
}

fn refused(tls: &Tls) -> String {
    match Identity::read(tls) {
        Ok(_) => panic!("it is accepted"),
        Err(why) => why,
    }
}

#[test]
fn valid_files_are_accepted_without_a_warning() {
    let files = Files::new();
    let identity = Identity::read(&files.good()).expect("it is good");
    assert_eq!(identity.warnings(), [""; 0]);
    let in_one = format!("{}{}", files.key, files.certificate);
    let memory = Tls::new().certificate_pem(&in_one).key_pem(&in_one);
    Identity::read(&memory).expect("both in one, from memory");
    let marked = ["\u{feff}", &in_one].concat();
    let marked = Tls::new().certificate_pem(&marked).key_pem(&marked);
    Identity::read(&marked).expect("a byte order mark is no part of the text");
    for between in ["", "\u{feff}", "\n\u{feff}"] {
        let joined = [files.certificate.trim_end(), between].concat().repeat(2);
        let joined = Pem::read(Kind::Certificate, &Source::memory(joined.as_bytes()));
        let certificates = joined.and_then(|it| it.certificates()).expect("two");
        assert_eq!(certificates.len(), 2, "{between:?}");
    }
    assert!(!format!("{memory:?}").contains("PRIVATE"), "{memory:?}");
}

#[test]
fn contents_that_the_master_has_read_replace_the_file() {
    let files = Files::new();
    let tls = files.good().client_ca_pem(&files.certificate);
    let read = tls.read_files().expect("they are good").contents;
    let path = files.file("good.key", "being replaced");
    refused(&tls);
    let using = |mut tls: Tls, files: &[u8]| {
        tls.use_files(files);
        tls
    };
    Identity::read(&using(tls.clone(), &read)).expect("the contents as read");
    // The master has not read this file.
    let moved = tls.clone().key_file("/no/such.key");
    let why = refused(&using(moved, &read));
    assert!(
        why.contains("cannot read the key file /no/such.key"),
        "{why}"
    );
    // Contents in another encoding are ignored.
    for nonsense in [&b""[..], b"nonsense", &read[..read.len() / 2]] {
        let why = refused(&using(tls.clone(), nonsense));
        assert!(why.contains(&path.display().to_string()), "{why}");
    }
}

#[test]
fn a_pipe_is_read_once_and_its_writer_is_not_waited_for_long() {
    let files = Files::new();
    let (reader, mut writer) = io::pipe().expect("a pipe");
    let path = format!("/proc/self/fd/{}", reader.as_raw_fd());
    let tls = files.good().certificate_file(&path);
    let before = refused(&tls);
    let certificate = files.certificate.as_bytes();
    writer.write_all(certificate).expect("it is small");
    drop(writer);
    Identity::read(&tls).expect("it was written");
    let named = format!("cannot read the certificate file {path}");
    for (why, text) in [(before, "nothing is written"), (refused(&tls), "only once")] {
        assert!(why.starts_with(&named) && why.contains(text), "{why}");
    }
    let why = refused(&files.good().certificate_file("/dev/null"));
    assert!(why.contains("holds no certificate"), "{why}");
}

/// As `openssl x509 -req -signkey` makes it.
const OF_VERSION_1: &str = "\
-----BEGIN CERTIFICATE-----
MIIBEzCBuwIUITlv8DS0Ap9yQsS/mVjQk4Az+aswCgYIKoZIzj0EAwIwDDEKMAgG
A1UEAwwBYTAgFw0yNjExMjgxMzM0NTZaGA8yMTA5MDExNzEzMzQ1NlowDDEKMAgG
A1UEAwwBYTBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABBDm/PA/tV5e49e+CLpD
CSdwayqlUaM2J2HauNXGR5rokvtch3eXthIQt4Do2rm2Qizbi01JnH4x4N7W1UYN
OHYwCgYIKoZIzj0EAwIDRwAwRAIgbrKvukLHsp/ZmEugol5nsJUihJ/dNKbWWCUS
4VcHMlMCIDqHTQY4vuHx1NsOOy+qtmMj+tsl0jbMySufyIIVHY6M
-----END CERTIFICATE-----
";

#[test]
fn the_error_for_a_bad_certificate_names_the_file_and_a_remedy() {
    let files = Files::new();
    let der = KeyPair::generate().expect("random").serialize_der();
    let broken = files.certificate.replace("MII", "M!!");
    let (cut, _) = files.certificate.split_once("-----END").expect("an end");
    let escaped = files.certificate.replace('\n', "\\n");
    let joined = files.certificate.replace('\n', "");
    for (name, bytes, text) in [
        ("empty", "", "holds no certificate; it must have a section"),
        (
            "swapped",
            &files.key,
            "holds a key and no certificate; are the two swapped?",
        ),
        ("broken", &broken, "is not well-formed PEM"),
        ("cut", cut, "has no end `-----END CERTIFICATE-----`"),
        ("escaped", &escaped, "PEM: a line begins with `-----BEGIN`"),
        ("joined", &joined, "line breaks are lost"),
        (
            "hollow",
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            "has a certificate that cannot be used",
        ),
        (
            "first version",
            OF_VERSION_1,
            "it must be an X.509 certificate of version 3",
        ),
    ] {
        let path = files.file(name, bytes);
        let why = refused(&files.good().certificate_file(&path));
        assert!(
            why.contains(&format!("the certificate file {}", path.display())),
            "{why}"
        );
        assert!(why.contains(text) && !why.contains('\n'), "{name}: {why}");
        assert!(!why.contains("MII"), "{name} is shown: {why}");
    }
    let why = refused(&files.good().certificate_file(files.file("der", der)));
    assert!(
        why.contains("is DER and not PEM; `openssl x509 -inform DER"),
        "{why}"
    );
    let why = refused(&files.good().certificate_file("/no/such.pem"));
    assert_eq!(
        why,
        "cannot read the certificate file /no/such.pem: No such file or directory (os error 2); \
         give the path of a PEM file"
    );
    let why = refused(&files.good().certificate_file("/"));
    assert!(
        why.contains("the certificate file /: Is a directory"),
        "{why}"
    );
    let why = refused(&Tls::new().key_pem(&files.key));
    assert!(why.contains("Tls::certificate_file"), "{why}");
}

#[test]
fn the_error_for_a_bad_key_names_the_file_and_a_remedy() {
    let (files, other) = (Files::new(), Files::new());
    let encrypted = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE \
                     KEY-----\n";
    let legacy = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: \
                  AES-256-CBC,AA\n\nAAAA\n-----END RSA PRIVATE KEY-----\n";
    let hollow = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    for (name, bytes, text) in [
        ("empty", "", "holds no private key; it must have a section"),
        (
            "swapped",
            &files.certificate,
            "holds a certificate and no key; are the two swapped?",
        ),
        ("encrypted", encrypted, "is encrypted"),
        ("legacy", legacy, "is encrypted"),
        ("hollow", hollow, "is of a kind that cannot be used"),
        (
            "other",
            &other.key,
            "does not belong to the certificate in the certificate file",
        ),
    ] {
        let path = files.file(name, bytes);
        let why = refused(&files.good().key_file(&path));
        assert!(
            why.contains(&format!("the key file {}", path.display())),
            "{why}"
        );
        assert!(why.contains(text) && !why.contains('\n'), "{name}: {why}");
    }
    let why = refused(&files.good().key_file("/no/such.key"));
    assert!(
        why.contains("cannot read the key file /no/such.key: No such file"),
        "{why}"
    );
    let why = refused(&Tls::new().certificate_pem(&files.certificate));
    assert!(why.contains("Tls::key_file"), "{why}");
    let reversed = format!("{}{}", other.certificate, files.certificate);
    let why = refused(&files.good().certificate_pem(reversed));
    assert!(
        why.contains("it belongs to certificate 2 in that file, which must be first"),
        "{why}"
    );
}

#[test]
fn the_error_for_a_bad_client_ca_names_the_file_and_a_remedy() {
    let files = Files::new();
    let path = files.file("ca", "nothing");
    let why = refused(&files.good().client_ca_file(&path));
    let named = format!("the client CA file {} holds no certificate", path.display());
    assert!(why.contains(&named), "{why}");
    let hollow = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let why = refused(&files.good().client_ca_pem(hollow));
    assert!(
        why.contains("the client CA from memory: certificate 1 in it"),
        "{why}"
    );
    let why = refused(&files.good().client_ca_file("/no/ca.pem"));
    assert!(
        why.contains("cannot read the client CA file /no/ca.pem"),
        "{why}"
    );
    let why = refused(&files.good().client_auth(ClientAuth::Optional));
    assert!(why.contains("Tls::client_ca_file"), "{why}");
}

#[test]
fn different_rules_for_clients_have_different_policies() {
    let (files, other) = (Files::new(), Files::new());
    let policy = |tls: &Tls| Identity::read(tls).expect("it is good").client_policy();
    let with_ca = files.good().client_ca_pem(&files.certificate);
    let policies = [
        policy(&files.good()),
        policy(&with_ca),
        policy(&with_ca.clone().client_auth(ClientAuth::Optional)),
        policy(&files.good().client_ca_pem(&other.certificate)),
    ];
    for (at, one) in policies.iter().enumerate() {
        assert!(!policies[at + 1..].contains(one), "{at}");
    }
    let required = with_ca.client_auth(ClientAuth::Required);
    assert_eq!(policy(&required), policies[1], "it is the default");
}

#[test]
fn a_certificate_at_the_wrong_time_is_only_a_warning() {
    let warnings = |change: &dyn Fn(&mut CertificateParams)| {
        let identity = Identity::read(&Files::with(change).good()).expect("it is accepted");
        identity.warnings().join("; ")
    };
    let expired = warnings(&|params| params.not_after = date_time_ymd(2020, 1, 1));
    assert!(
        expired.contains("good.pem has a certificate that expired"),
        "{expired}"
    );
    let early = warnings(&|params| params.not_before = date_time_ymd(3000, 1, 1));
    assert!(
        early.contains("good.pem has a certificate that becomes valid in"),
        "{early}"
    );
}

#[test]
fn a_key_that_others_can_read_is_only_a_warning() {
    let files = Files::new();
    let tls = files.good();
    for (mode, expected) in [(0o600, 0), (0o640, 0), (0o604, 1), (0o602, 1)] {
        let path = files.dir.path().join("good.key");
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
        let identity = Identity::read(&tls).expect("it is accepted");
        assert_eq!(
            identity.warnings().len(),
            expected,
            "{:?}",
            identity.warnings()
        );
    }
}

#[test]
fn only_the_chosen_cipher_suites_and_versions_are_used() {
    let files = Files::new();
    let tls = files.good();
    let versions = |tls: &Tls| {
        let identity = Identity::read(tls).expect("it is good");
        let versions = identity.versions.iter().map(|it| it.version);
        (identity.provider.cipher_suites.len(), versions.collect())
    };
    let both = vec![ProtocolVersion::TLSv1_3, ProtocolVersion::TLSv1_2];
    assert!(versions(&tls).0 > 2);
    assert_eq!(versions(&tls).1, both);
    let new = "TLS13_AES_128_GCM_SHA256";
    let old = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256";
    assert_eq!(versions(&tls.clone().ciphers([new, old])), (2, both));
    let only_old = (1, vec![ProtocolVersion::TLSv1_2]);
    assert_eq!(versions(&tls.clone().ciphers([old])), only_old);
    let strict = tls.min_version(TlsVersion::Tls13);
    let only_new = (1, vec![ProtocolVersion::TLSv1_3]);
    assert_eq!(versions(&strict.clone().ciphers([new])), only_new);
    let why = refused(&strict.clone().ciphers([old]));
    assert!(
        why.contains("none of the cipher suites is for TLS 1.3"),
        "{why}"
    );
    let why = refused(&strict.ciphers(["RC4"]));
    assert!(
        why.contains("`RC4` is no cipher suite") && why.contains(new),
        "{why}"
    );
}

#[test]
fn cipher_suites_for_another_kind_of_key_are_a_warning_or_an_error() {
    let files = Files::new();
    let tls = files.good();
    let new = "TLS13_AES_128_GCM_SHA256";
    let rsa = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256";
    let why = refused(&tls.clone().ciphers([rsa]));
    assert!(why.contains("is for the kind of key"), "{why}");
    let identity = Identity::read(&tls.clone().ciphers([rsa, new])).expect("for TLS 1.3");
    let [warning] = identity.warnings() else {
        panic!("{:?}", identity.warnings());
    };
    assert!(warning.ends_with("only clients with TLS 1.3 are served"));
    let strict = tls.min_version(TlsVersion::Tls13).ciphers([rsa, new]);
    let identity = Identity::read(&strict).expect("for TLS 1.3");
    assert_eq!(identity.warnings(), [""; 0]);
}

/// A client that cannot verify the key of the first one gets the next.
#[test]
fn a_certificate_with_the_name_itself_comes_before_one_with_a_star() {
    let files = ["localhost", "*.example.org", "a.example.org"].map(Files::with_name);
    let [first, any, exact] = &files;
    let pem = |files: &Files| Certificate::pem(&files.certificate, &files.key);
    let tls = first.good().certificate(pem(any)).certificate(pem(exact));
    let certificates = Identity::read(&tls).expect("they are good").certificates;
    let with_name = |name| certificates.with_name(name).collect::<Vec<_>>();
    assert_eq!(with_name("a.example.org"), [2, 1]);
    assert_eq!(with_name("b.example.org"), [1]);
    assert_eq!(with_name("example.org"), [0; 0]);
}

/// RFC 6066 3 forbids the dot of the root. Some clients send it, and mean the same name.
#[test]
fn a_name_with_a_dot_at_its_end_is_the_same_name() {
    let [files, other] = ["localhost", "example.org"].map(Files::with_name);
    let pem = Certificate::pem(&other.certificate, &other.key);
    let tls = files.good().certificate(pem);
    let certificates = Identity::read(&tls).expect("they are good").certificates;
    let wanted = certificates.with_name("example.org").next();
    let wanted = &certificates.all[wanted.expect("it has this name")];
    // rustls removes the dot, so it takes the place of a letter.
    let mut hello = Vec::new();
    let config = ClientConfig::builder_with_provider(super::super::crypto::provider())
        .with_safe_default_protocol_versions()
        .expect("some")
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let name = ServerName::try_from("example.orgx").expect("a name");
    let mut client = ClientConnection::new(config.into(), name).expect("a session");
    client.write_tls(&mut hello).expect("memory");
    let at = hello.windows(12).position(|it| it == b"example.orgx");
    hello[at.expect("the name") + 11] = b'.';
    let mut acceptor = Acceptor::default();
    acceptor.read_tls(&mut &hello[..]).expect("memory");
    let accepted = acceptor.accept().ok().flatten().expect("a client's hello");
    let mut learned = Learned::NOTHING;
    let chosen = learned.during(|| certificates.resolve(accepted.client_hello()));
    assert_eq!(learned.name.as_deref(), Some("example.org"));
    assert!(chosen.is_some_and(|chosen| Arc::ptr_eq(&chosen, wanted)));
}

#[test]
fn an_ocsp_response_is_checked_and_read_with_the_other_files() {
    let files = Files::new();
    let response = b"\x30\x03\x0a\x01\x00";
    let tls = files.good().ocsp_file(files.file("good.ocsp", response));
    let certified = certified_key(&tls.first, &mut Vec::new()).expect("it is good");
    assert_eq!(certified.ocsp.as_deref(), Some(&response[..]));
    let read = tls.read_files().expect("it is good").contents;
    let path = files.file("good.ocsp", "being replaced");
    let why = refused(&tls);
    assert!(
        why.contains(&format!("the OCSP file {} is no OCSP", path.display())),
        "{why}"
    );
    let mut using = tls;
    using.use_files(&read);
    Identity::read(&using).expect("the contents as read");
}

#[test]
fn a_stale_ocsp_response_is_only_a_warning() {
    let files = Files::new();
    for (next_update, expected) in [
        (None, 0),
        (Some("20200102000000Z"), 1),
        (Some("99991231235959Z"), 0),
    ] {
        let response = files.file("good.ocsp", ocsp_response(&[], next_update));
        let identity = Identity::read(&files.good().ocsp_file(response)).expect("it is good");
        assert_eq!(identity.warnings().len(), expected, "{next_update:?}");
        if let [warning] = identity.warnings() {
            assert!(
                warning.contains("good.ocsp was to be replaced"),
                "{warning}"
            );
        }
    }
}

#[test]
fn each_certificate_has_its_key() {
    let (files, other) = (Files::new(), Files::new());
    let good = Certificate::pem(&other.certificate, &other.key);
    Identity::read(&files.good().certificate(good)).expect("each has its own");
    let wrong = Certificate::pem(&other.certificate, &files.key);
    let why = refused(&files.good().certificate(wrong));
    assert!(why.contains("does not belong to the certificate"), "{why}");
}
