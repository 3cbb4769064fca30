//! Which types may cross threads. The compiler finds that out from private fields, so a change of
//! a field could take it away from programs.

use prefork_server::control::{Begun, Command, Control, ControlError};
use prefork_server::*;

fn send_and_sync<T: Send + Sync>() {}
fn send<T: Send>() {}

/// `Prefork`, `Hooks` and the app's service stay on one thread.
#[test]
fn what_a_handler_and_other_threads_need_is_send_and_sync() {
    send_and_sync::<(Body, BodyError, Buffer, ConnectionInfo, ConnectionId)>();
    send_and_sync::<(Worker, WorkerInfo, Handle, Status, Totals, Notice)>();
    send_and_sync::<(Connection, Incoming)>();
    // As a body it must be both: `BodyExt::boxed` of http-body-util wants that.
    send_and_sync::<UntilDrain<()>>();
    send_and_sync::<(Address, AddressError, Peer, Network, NetworkError)>();
    send_and_sync::<(Http, Error, Exit, TestServer)>();
    send_and_sync::<(Begun, Command, Control, ControlError)>();
    send::<Piece>();
    #[cfg(feature = "tls")]
    send_and_sync::<(Tls, Certificate, TlsInfo)>();
    #[cfg(feature = "files")]
    {
        use prefork_server::files::{FileBody, FileBytes, FileService, Files, FilesFuture};
        send_and_sync::<(FileBody, FileBytes, FileService, Files)>();
        send::<FilesFuture>();
    }
    #[cfg(all(feature = "files", feature = "tower"))]
    {
        use prefork_server::files::{TowerFiles, TowerFilesFuture};
        send_and_sync::<TowerFiles>();
        send::<TowerFilesFuture>();
    }
}

#[allow(dead_code)]
fn futures_are_send(worker: &Worker, incoming: &mut Incoming) {
    fn send_and_sync(_: impl Future + Send + Sync) {}
    fn send(_: impl Future + Send) {}
    send_and_sync(worker.drain());
    send(incoming.accept());
}
