//! The rules on any head that hyper may parse from bytes.

use super::*;
use crate::fuzz;

#[test]
fn authorities() {
    fuzz::check("http-exchange-rules-authorities", |bytes| {
        let Some(Authority { host, port }) = Authority::parse(bytes) else {
            return;
        };
        let shown = match port {
            Some(port) => [host, b":", port].concat(),
            None => host.to_vec(),
        };
        assert_eq!(shown, bytes);
        assert!(bytes.iter().all(u8::is_ascii_graphic));
        assert!(!bytes.iter().any(|byte| b"/?#@\\".contains(byte)));
        assert!(port.is_none_or(|digits| digits.iter().all(u8::is_ascii_digit)));
        let alone = Authority::parse(host).expect("a host is an authority");
        assert_eq!((alone.host, alone.port), (host, None));
    });
}

#[test]
fn heads() {
    fuzz::check("http-exchange-rules-heads", |bytes| {
        let Some(mut request) = head(bytes) else {
            return;
        };
        let http = Http::new();
        if let Err(refusal) = check(&request, &http) {
            assert!(refusal.status().is_client_error() || refusal == Refusal::Coding);
            assert!(!refusal.to_string().is_empty());
            return;
        }
        let hosts = request.headers().get_all(HOST).iter().count();
        assert!(hosts == 1 || hosts == 0 && request.version() == Version::HTTP_10);
        settle_host(&mut request);
        assert_eq!(check(&request, &http), Ok(()), "the request stays valid");
        if let Some(authority) = request.uri().authority() {
            assert_eq!(request.headers()[HOST], authority.as_str());
        }
    });
}

/// Parses `METHOD target version`, then lines of `name: value`. `None` if hyper would refuse it.
fn head(bytes: &[u8]) -> Option<Request<()>> {
    let mut lines = bytes.split(|&byte| byte == b'\n');
    let mut words = lines.next()?.split(|&byte| byte == b' ');
    let mut request = Request::new(());
    *request.method_mut() = Method::from_bytes(words.next()?).ok()?;
    *request.uri_mut() = Uri::try_from(words.next()?).ok()?;
    *request.version_mut() = match words.next() {
        Some(b"HTTP/1.0") => Version::HTTP_10,
        _ => Version::HTTP_11,
    };
    for line in lines {
        let colon = line.iter().position(|&byte| byte == b':')?;
        let name = HeaderName::from_bytes(&line[..colon]).ok()?;
        let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii()).ok()?;
        request.headers_mut().append(name, value);
    }
    Some(request)
}
