//! Answers in the memory of their requests.

use http::request::Parts;
use http::response::{Builder, Response};

/// Begins an answer, 200 unless said otherwise, that takes over its request's header map, emptied.
///
/// A new map is an allocation for each answer; this one has been allocated with the request, which
/// itself got it from the answer before. So it costs nothing in the steady state, as long as the
/// answer has no more fields than there was room for.
///
/// ```
/// use prefork_server::{Request, Response, reply};
///
/// async fn hello(request: Request) -> Result<Response, http::Error> {
///     let (head, _body) = request.into_parts();
///     reply(head)
///         .header("content-type", "text/plain; charset=utf-8")
///         .body("Hello, World!".into())
/// }
/// ```
pub fn reply(request: Parts) -> Builder {
    let mut headers = request.headers;
    headers.clear();
    let mut builder = Response::builder();
    if let Some(map) = builder.headers_mut() {
        *map = headers;
    }
    builder
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, Request};

    use super::*;

    #[test]
    fn nothing_of_the_request_is_left_but_its_memory() {
        let mut request = Request::new(());
        for at in 0..20 {
            let name = http::HeaderName::try_from(format!("x-{at}")).expect("a name");
            request
                .headers_mut()
                .insert(name, HeaderValue::from_static("?"));
        }
        let capacity = request.headers().capacity();
        let response = reply(request.into_parts().0).body(()).expect("a response");
        assert_eq!(response.status(), 200);
        assert!(response.headers().is_empty());
        assert_eq!(response.headers().capacity(), capacity);
    }
}
