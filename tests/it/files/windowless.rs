//! Files for a client of HTTP/2 whose flow-control window is zero.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use super::{directory, serve};
use crate::client::get;
use crate::support::{CEILING, descriptors, status_kib, until};

tests! {
    a_connection_without_a_window_keeps_little_file_data_in_memory,
}

/// A client of HTTP/2 that grants no window. It writes the frames itself, because no library can.
struct Windowless(TcpStream);

impl Windowless {
    /// Requests this number of files, each by a stream of its own.
    fn ask(address: SocketAddr, files: usize) -> Self {
        let mut stream = TcpStream::connect(address).expect("the server accepts");
        stream.set_read_timeout(Some(CEILING)).expect("a timeout");
        let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        // SETTINGS_INITIAL_WINDOW_SIZE (RFC 9113 6.5.2).
        bytes.extend(frame(4, 0, 0, &[0, 4, 0, 0, 0, 0]));
        for at in 0..files {
            let path = format!("/{at}");
            // `:method` GET, `:scheme` http, `:path` and `:authority` (RFC 7541 A).
            let mut head = vec![0x82, 0x86, 0x04, u8::try_from(path.len()).expect("short")];
            head.extend_from_slice(path.as_bytes());
            head.extend_from_slice(b"\x01\x04test");
            let id = u32::try_from(2 * at + 1).expect("few files");
            bytes.extend(frame(1, 5, id, &head));
        }
        stream.write_all(&bytes).expect("the server reads");
        Self(stream)
    }

    /// Waits for a frame of the type.
    fn wait(&mut self, wanted: u8) {
        loop {
            let mut head = [0; 9];
            self.0.read_exact(&mut head).expect("a frame");
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let mut payload = vec![0; length as usize];
            self.0.read_exact(&mut payload).expect("its payload");
            if head[3] == wanted {
                return;
            }
        }
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short frame");
    let mut frame = length.to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// Each connection requests 128 files of a mebibyte, and reads no byte of them.
fn a_connection_without_a_window_keeps_little_file_data_in_memory() {
    const CONNECTIONS: usize = 8;
    const STREAMS: usize = 128;
    const HEADERS: u8 = 1;
    const PING: u8 = 6;
    let dir = directory(CONNECTIONS * STREAMS, 1 << 20);
    let mut server = serve(&dir, 4096, "");
    let address = server.address();
    let worker = server.workers()[0];
    assert_eq!(get(address, "/small").body, "small");
    let before = (descriptors(worker), status_kib(worker, "VmRSS"));
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut client = Windowless::ask(address, STREAMS);
        (0..16).for_each(|_| client.wait(HEADERS));
        // The server has read the requests before it responds to this.
        let ping = frame(PING, 0, 0, &[0; 8]);
        client.0.write_all(&ping).expect("the server reads");
        client.wait(PING);
        clients.push(client);
        assert_eq!(get(address, "/small").body, "small");
    }
    // The worker closes the last connection to `/small` a moment after its client.
    until(|| descriptors(worker) <= before.0 + CONNECTIONS + 16);
    // Half of this is what 128 requests of HTTP/2 take without files.
    let kib = (status_kib(worker, "VmRSS") - before.1) / CONNECTIONS;
    assert!(kib < 1024, "{kib} KiB for each connection");
}
