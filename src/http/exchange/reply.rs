//! A response that reuses the header map of its request.

use http::request::Parts;
use http::response::{Builder, Response};

/// Begins a response that reuses the header map of its request. The map is emptied first.
/// Default status: 200.
///
/// A new map costs an allocation for each response. This map was allocated with the request, which
/// itself got it from the response before. So in the steady state the map costs no allocation, as
/// long as the response has no more fields than the map has capacity for.
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
    fn a_reply_has_no_field_of_its_request_and_the_same_capacity() {
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
