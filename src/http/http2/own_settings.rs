//! Settings that the server tells a client itself, beside those of h2: for the windows of streams
//! while a connection is to move (RFC 9113 6.9.2), and after the move.
//!
//! While it is to move, new streams wait. Their bodies would fill the window of the connection, and
//! the rest of open uploads could not come any more. So the server sets the initial window to 0 if
//! there are any. They keep what they had: each gets the difference. The next server sets the
//! initial window back, or tells the client its own limits. If the connection stays, each new
//! upload gets a window of its own.
//!
//! h2 knows nothing of these settings: it reads no acknowledgement of them.

use bytes::BytesMut;

use crate::codec::record;
use crate::http::http2::announced::Announced;
use crate::http::http2::scan::{
    ACK, DATA, END_STREAM, FRAME_HEADER, HEADERS, Header, INITIAL_WINDOW_SIZE,
    MAX_CONCURRENT_STREAMS, MAX_HEADER_LIST_SIZE, RST_STREAM, SETTINGS, WINDOW_UPDATE, cut,
    setting, write_frame,
};

/// What the client was told, and what it is to be told next.
#[derive(Debug)]
pub(crate) struct OwnSettings {
    told: Told,
    /// Streams whose requests have not come to their ends.
    uploads: Vec<u32>,
    unwritten: Option<Box<Unwritten>>,
    /// Whether the last frame that h2 has written was a part of a head, and not the last one.
    is_in_head: bool,
}

/// What the client is to be told next.
#[derive(Debug, Default)]
struct Unwritten {
    settings: Vec<u8>,
    /// Streams that get the announced window.
    granted: Vec<u32>,
}

/// What the client was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) announced: Announced,
    initial: Initial,
    /// How many SETTINGS frames it has not acknowledged. Each move adds two at most.
    unacknowledged: u16,
}

record!(Told {
    announced,
    initial,
    unacknowledged
});

/// The initial window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Initial {
    Announced,
    Zero,
}

record!(enum Initial { 0 = Announced, 1 = Zero });

impl Told {
    pub(crate) fn first(announced: Announced) -> Self {
        Self {
            announced,
            initial: Initial::Announced,
            unacknowledged: 0,
        }
    }
}

/// Whether a frame of the client begins a stream that h2 processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begins {
    Stream,
    Nothing,
}

/// Whether a frame ends a request with a body, whose end had not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ends {
    Upload,
    Nothing,
}

impl OwnSettings {
    pub(crate) fn new(told: Told) -> Self {
        Self {
            told,
            uploads: Vec::new(),
            unwritten: None,
            is_in_head: false,
        }
    }

    /// What another server needs to know of a client without an open stream.
    pub(crate) fn told(&self) -> Told {
        self.told
    }

    /// h2 reads this frame of the client.
    pub(crate) fn read(&mut self, frame: &Header, begins: Begins) -> Ends {
        let is_last = frame.flags & END_STREAM != 0;
        match frame.kind {
            HEADERS if !is_last && begins == Begins::Stream => self.begin(frame.stream),
            HEADERS | DATA if is_last => return self.end(frame.stream),
            RST_STREAM => {
                self.end(frame.stream);
            }
            _ => {}
        }
        Ends::Nothing
    }

    /// Whether a stream is open whose request has not come to its end.
    pub(crate) fn have_uploads(&self) -> bool {
        !self.uploads.is_empty()
    }

    fn begin(&mut self, stream: u32) {
        self.uploads.push(stream);
        if self.told.initial == Initial::Zero {
            self.unwritten().granted.push(stream);
        }
    }

    /// h2 has written this frame.
    pub(crate) fn wrote(&mut self, frame: &Header) {
        self.is_in_head = frame.leaves_head_open();
        if frame.kind == RST_STREAM {
            self.end(frame.stream);
        }
    }

    /// A closed stream gets no window: the client may have forgotten it.
    fn end(&mut self, stream: u32) -> Ends {
        let mut ends = Ends::Nothing;
        let granted = self
            .unwritten
            .as_mut()
            .map(|unwritten| &mut unwritten.granted);
        for streams in [&mut self.uploads].into_iter().chain(granted) {
            if let Some(at) = streams.iter().position(|other| *other == stream) {
                streams.swap_remove(at);
                ends = Ends::Upload;
            }
        }
        ends
    }

    fn unwritten(&mut self) -> &mut Unwritten {
        self.unwritten.get_or_insert_default()
    }

    /// From now on the client sends no bodies of streams that it opens, if others need the window
    /// of the connection.
    pub(crate) fn close_new_windows(&mut self) {
        if self.told.initial == Initial::Announced && !self.uploads.is_empty() {
            self.tell(Initial::Zero, &[setting(INITIAL_WINDOW_SIZE, 0)]);
            self.unwritten().granted = self.uploads.clone();
        }
    }

    /// From now on the client knows what h2 takes for announced. No stream is open.
    pub(crate) fn announce(&mut self, announced: Announced) {
        self.uploads.clear();
        self.unwritten = None;
        let Announced {
            max_streams,
            header_list_size,
            stream_window,
            ..
        } = announced;
        let settings = [
            setting(INITIAL_WINDOW_SIZE, stream_window),
            setting(MAX_CONCURRENT_STREAMS, max_streams),
            setting(MAX_HEADER_LIST_SIZE, header_list_size),
        ];
        if self.told.announced != announced {
            self.told.announced = announced;
            self.tell(Initial::Announced, &settings);
        } else if self.told.initial == Initial::Zero {
            self.tell(Initial::Announced, &settings[..1]);
        }
    }

    fn tell(&mut self, initial: Initial, settings: &[[u8; 6]]) {
        let unwritten = &mut self.unwritten().settings;
        write_frame(unwritten, SETTINGS, 0, 0, settings.as_flattened());
        self.told.initial = initial;
        self.told.unacknowledged = self.told.unacknowledged.saturating_add(1);
    }

    /// The frames to be written after whole frames of h2. None within a head, because no other
    /// frame can follow a part of one.
    pub(crate) fn take_unwritten(&mut self) -> Vec<u8> {
        let Some(unwritten) = self.unwritten.take_if(|_| !self.is_in_head) else {
            return Vec::new();
        };
        let mut frames = unwritten.settings;
        let window = self.told.announced.stream_window.to_be_bytes();
        // The settings come first. In the other order a client could use both windows.
        for stream in unwritten.granted {
            write_frame(&mut frames, WINDOW_UPDATE, 0, stream, &window);
        }
        frames
    }

    /// Gives memory back that is not needed while no stream is open.
    pub(crate) fn shrink(&mut self) {
        self.uploads.shrink_to_fit();
    }

    pub(crate) fn are_written(&self) -> bool {
        self.unwritten.is_none()
    }

    /// Whether an acknowledgement may come that h2 must not read.
    pub(crate) fn are_unacknowledged(&self) -> bool {
        self.told.unacknowledged > 0
    }

    /// Takes the acknowledgements out of the input, whose first `begin` bytes belong to the frame
    /// that h2 has begun to read. Returns how many bytes at the end may be a part of one.
    pub(crate) fn take_acknowledgements(&mut self, input: &mut BytesMut, begin: usize) -> usize {
        let mut at = begin;
        while self.are_unacknowledged() && at < input.len() {
            let Some(header) = Header::first_of(&input[at..]) else {
                return input.len() - at;
            };
            if header.kind == SETTINGS && header.flags & ACK != 0 && header.len == 0 {
                cut(input, at, FRAME_HEADER);
                self.told.unacknowledged -= 1;
            } else {
                at += FRAME_HEADER + header.len;
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::http2::scan::{CONTINUATION, END_HEADERS, PING, Scan};

    const NINE: Announced = Announced {
        max_streams: 9,
        header_list_size: 9,
        stream_window: 9,
        connection_window: 9,
    };

    /// The frames before the acknowledgement, between two, and after them; the last one is that of
    /// other settings.
    #[test]
    fn acknowledgements_are_taken_out_of_reads_of_any_length() {
        let [mut sent, mut expected] = [Vec::new(), Vec::new()];
        for at in 0..7 {
            if [1, 3, 6].contains(&at) {
                write_frame(&mut sent, SETTINGS, ACK, 0, b"");
            } else {
                write_frame(&mut sent, PING, ACK, 0, &[at; 8]);
                write_frame(&mut expected, PING, ACK, 0, &[at; 8]);
            }
        }
        write_frame(&mut expected, SETTINGS, ACK, 0, b"");
        for piece in 1..=sent.len() {
            let mut told = Told::first(NINE);
            told.unacknowledged = 2;
            let mut settings = OwnSettings::new(told);
            let (mut input, mut scan) = (BytesMut::new(), Scan::between_frames());
            let mut read = Vec::new();
            for bytes in sent.chunks(piece) {
                input.extend_from_slice(bytes);
                let Some(begin) = scan.rest_of_frame(&input) else {
                    scan.read(&input, |_| false, |_, _| ());
                    read.extend_from_slice(&input.split());
                    continue;
                };
                let part = settings.take_acknowledgements(&mut input, begin);
                let taken = input.split_to(input.len() - part);
                scan.read(&taken, |_| false, |_, _| ());
                read.extend_from_slice(&taken);
            }
            assert_eq!(read, expected, "in pieces of {piece}");
            assert!(input.is_empty() && !settings.are_unacknowledged());
        }
    }

    /// Those of 1000 moves. What comes after them acknowledges other settings.
    #[test]
    fn a_client_may_acknowledge_the_settings_of_many_moves_at_once() {
        let mut settings = OwnSettings::new(Told::first(NINE));
        let ten = Announced {
            max_streams: 10,
            ..NINE
        };
        let mut input = BytesMut::new();
        for announced in [ten, NINE].repeat(500) {
            settings = OwnSettings::new(settings.told());
            settings.announce(announced);
            input.extend_from_slice(&[0, 0, 0, SETTINGS, ACK, 0, 0, 0, 0]);
        }
        assert_eq!(settings.take_acknowledgements(&mut input, 0), 0);
        assert!(input.is_empty() && !settings.are_unacknowledged());
    }

    /// In what order they are opened and closed, before and while the initial window is 0.
    #[test]
    fn open_uploads_keep_their_windows() {
        let begin = |stream| Header {
            len: 0,
            kind: HEADERS,
            flags: END_HEADERS,
            stream,
        };
        let end = |kind, stream| Header {
            kind,
            flags: END_STREAM,
            ..begin(stream)
        };
        let mut settings = OwnSettings::new(Told::first(NINE));
        settings.close_new_windows();
        assert!(settings.are_written(), "no upload needs the window");
        for stream in [1, 3, 5, 7, 9] {
            settings.read(&begin(stream), Begins::Stream);
        }
        settings.read(&end(DATA, 1), Begins::Nothing);
        settings.read(&end(HEADERS, 5), Begins::Nothing);
        settings.read(&end(RST_STREAM, 9), Begins::Nothing);
        settings.read(&begin(9), Begins::Nothing);
        settings.wrote(&end(RST_STREAM, 3));
        settings.close_new_windows();
        let mut expected = Vec::new();
        write_frame(&mut expected, SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
        write_frame(&mut expected, WINDOW_UPDATE, 0, 7, &[0, 0, 0, 9]);
        settings.wrote(&Header {
            flags: 0,
            ..begin(7)
        });
        assert!(settings.take_unwritten().is_empty(), "within a head");
        settings.wrote(&Header {
            kind: CONTINUATION,
            ..begin(7)
        });
        assert_eq!(settings.take_unwritten(), expected);
        for stream in [11, 13] {
            settings.read(&begin(stream), Begins::Stream);
        }
        settings.wrote(&end(RST_STREAM, 13));
        settings.close_new_windows();
        let mut expected = Vec::new();
        write_frame(&mut expected, WINDOW_UPDATE, 0, 11, &[0, 0, 0, 9]);
        assert_eq!(settings.take_unwritten(), expected);
        settings.announce(NINE);
        let mut expected = Vec::new();
        write_frame(&mut expected, SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 9]);
        assert_eq!(settings.take_unwritten(), expected);
        settings.announce(NINE);
        assert!(settings.are_written());
    }
}
