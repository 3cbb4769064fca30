//! Tower services: each request waits until its instance of the service is ready.

use super::*;

/// What all instances of [`Stub`] share. It is not `Send`.
#[derive(Default)]
struct Shared {
    clones: Cell<usize>,
    is_ready: Cell<bool>,
    fails: Cell<bool>,
    woken: RefCell<Vec<std::task::Waker>>,
    polled: Notify,
}

impl Shared {
    fn make_ready(&self) {
        self.is_ready.set(true);
        self.woken
            .take()
            .into_iter()
            .for_each(std::task::Waker::wake);
    }
}

/// A service that is ready when a test says so, and may then be called once.
#[derive(Default)]
struct Stub {
    shared: Rc<Shared>,
    reserved: bool,
}

impl Clone for Stub {
    fn clone(&self) -> Self {
        self.shared.clones.set(self.shared.clones.get() + 1);
        Self {
            shared: Rc::clone(&self.shared),
            reserved: false,
        }
    }
}

impl tower_service::Service<Request> for Stub {
    type Response = Response<UnsyncBoxBody<Bytes, BoxError>>;
    type Error = BoxError;
    type Future = std::future::Ready<HandlerResult>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        if self.shared.fails.get() {
            return Poll::Ready(Err("it broke".into()));
        }
        if !self.shared.is_ready.get() {
            self.shared.woken.borrow_mut().push(cx.waker().clone());
            self.shared.polled.notify_one();
            return Poll::Pending;
        }
        self.reserved = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _request: Request) -> Self::Future {
        assert!(self.reserved, "it was ready before");
        self.reserved = false;
        std::future::ready(Ok(text("hello")))
    }
}

#[test]
fn requests_one_after_the_other_share_one_instance() {
    run(async {
        let stub = Stub::default();
        let shared = Rc::clone(&stub.shared);
        shared.make_ready();
        let host = Host::start_service(options(), tower_service(stub)).await;
        for _ in 0..2 {
            let mut client = host.connect().await;
            for _ in 0..3 {
                client.hello().await;
            }
        }
        assert_eq!(shared.clones.get(), 1, "of the original");
    });
}

#[test]
fn requests_wait_until_the_service_is_ready_each_with_an_instance() {
    run(async {
        let stub = Stub::default();
        let shared = Rc::clone(&stub.shared);
        let host = Host::start_service(options(), tower_service(stub)).await;
        let mut clients = [host.connect().await, host.connect().await];
        for client in &mut clients {
            client.send(HELLO).await;
            shared.polled.notified().await;
        }
        assert_eq!(shared.clones.get(), 2);
        shared.make_ready();
        for client in &mut clients {
            client.expect(HELLO_RESPONSE).await;
            client.hello().await;
        }
        assert_eq!(shared.clones.get(), 2);
    });
}

#[test]
fn a_service_that_fails_before_the_call_gets_500() {
    run(async {
        let stub = Stub::default();
        stub.shared.fails.set(true);
        let host = Host::start_service(options(), tower_service(stub)).await;
        let mut client = host.connect().await;
        client.send(HELLO).await;
        client
            .expect("HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n")
            .await;
    });
}
