//! Responses that need no new header map.

use http::request::Parts;
use http::response::{Builder, Response};

use crate::pool::field_maps;

/// Begins a response whose header map was used before, in exchange for the one of its request. It
/// has no fields. Default status: 200.
///
/// A new map costs an allocation for each response. In the steady state this one costs none, as
/// long as the response has no more fields than the map has capacity for. The server also keeps the
/// fields of the request's map, and has less to do for the next request with the same ones.
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
pub fn reply(mut request: Parts) -> Builder {
    field_maps::exchange(&mut request.headers);
    let mut builder = Response::builder();
    if let Some(headers) = builder.headers_mut() {
        field_maps::place(headers, request.headers);
    }
    builder
}

/// As [`reply`], for a response 200 that needs no builder: it has this body, and no fields yet.
///
/// ```
/// use std::convert::Infallible;
///
/// use prefork_server::{Request, Response, reply_with};
///
/// async fn hello(request: Request) -> Result<Response, Infallible> {
///     let (head, _body) = request.into_parts();
///     Ok(reply_with(head, "Hello, World!".into()))
/// }
/// ```
pub fn reply_with<B>(mut request: Parts, body: B) -> Response<B> {
    field_maps::exchange(&mut request.headers);
    let mut response = Response::new(body);
    field_maps::place(response.headers_mut(), request.headers);
    response
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
