//! The parts of a connection's state: small enums, each in one atomic byte.

use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;

/// An enum that fits into a byte.
pub(crate) trait Byte: Copy + fmt::Debug + 'static {
    /// The number of the value. The initial value has 0.
    fn byte(self) -> u8;

    /// The value of a number that [`Byte::byte`] gave.
    fn of(byte: u8) -> Self;
}

/// An enum in an atomic byte. Relaxed: no other memory depends on it.
pub(crate) struct Atomic<E>(AtomicU8, PhantomData<E>);

impl<E: Byte> Atomic<E> {
    #[inline]
    pub(crate) fn get(&self) -> E {
        E::of(self.0.load(Relaxed))
    }

    #[inline]
    pub(crate) fn is(&self, value: E) -> bool {
        self.0.load(Relaxed) == value.byte()
    }

    #[inline]
    pub(crate) fn set(&self, value: E) {
        self.0.store(value.byte(), Relaxed);
    }
}

impl<E: Byte> Default for Atomic<E> {
    fn default() -> Self {
        Self(AtomicU8::new(0), PhantomData)
    }
}

impl<E: Byte> fmt::Debug for Atomic<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

/// An enum with its [`Byte`].
macro_rules! byte_enum {
    ($(#[$meta:meta])* $name:ident { $($(#[$of_variant:meta])* $variant:ident,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub(crate) enum $name {
            $($(#[$of_variant])* $variant,)+
        }

        impl Byte for $name {
            #[inline]
            fn byte(self) -> u8 {
                self as u8
            }

            #[inline]
            fn of(byte: u8) -> Self {
                match byte {
                    $(byte if byte == Self::$variant as u8 => Self::$variant,)+
                    _ => unreachable!("only bytes of values are stored"),
                }
            }
        }
    };
}

byte_enum! {
    /// What a connection, or a stream of HTTP/2, is doing. Its deadline follows from that.
    Stage {
        /// No byte has come. A TLS handshake or a PROXY header may be due before HTTP.
        Unopened,
        /// What comes before HTTP is under way: a TLS handshake, a PROXY header.
        Opening,
        /// No byte of HTTP has come.
        Fresh,
        /// The head of a request is coming in.
        Head,
        /// From the end of the head to the response of the handler. The handler may take any time;
        /// only a client that does not send its body is timed.
        Handling,
        /// From the response of the handler to the end of its body. Only a client that does not
        /// read is timed.
        Responding,
        /// Between requests.
        Idle,
        /// The server has sent its last bytes. It discards what the client sends until the client
        /// closes.
        Closing,
        /// HTTP/2 with open streams, or with bytes of their responses that the client does not
        /// take. Each stream is timed by a state of its own.
        Streams,
        /// HTTP/2 without an open stream.
        Quiet,
        /// As `Quiet`, and the client was sent GOAWAY. Or the handshake has failed, and the client
        /// is sent the reason.
        Ending,
        /// No longer HTTP: the handler, or a task that it started, owns the stream.
        Upgraded,
        /// On its way to another server. The connection is not read; what the client sends waits in
        /// the kernel.
        HandedOver,
    }
}

byte_enum! {
    /// The body of the present request.
    RequestBody {
        /// The request has no body, or the body was read to its end.
        Done,
        /// The handler, or a task that it started, may read the body.
        Open,
        /// It was dropped before its end, and hyper has not been polled since: the next bytes may
        /// be the rest of it.
        Dropped,
        /// It was dropped before its end, and hyper has discarded the rest or ends the connection.
        Discarded,
    }
}

byte_enum! {
    /// Why a request's body cannot be read to its end.
    BodyFailure {
        None,
        TooLarge,
        TimedOut,
        Broken,
    }
}

byte_enum! {
    /// What the stream does with bytes that are written to it.
    Output {
        /// The stream may hold bytes back, to send them with the next ones. It holds none.
        Empty,
        /// The stream may hold bytes back, and does.
        Held,
        /// The client has asked for an upgrade: from now on the stream sends at once, whether the
        /// handler grants the upgrade or not. Bytes that it held before are not sent yet.
        LastHeld,
        /// As `LastHeld`, and the held bytes are sent.
        Direct,
    }
}

byte_enum! {
    /// Whether the connection may go to another server when it is idle.
    Handover {
        Forbidden,
        Allowed,
    }
}

byte_enum! {
    /// Whether the stream has to ask the kernel, at its next flush, if the client is still there.
    ClientCheck {
        NotDue,
        Due,
    }
}

byte_enum! {
    /// Whether the connection ends. The value only moves down this list.
    End {
        Open,
        /// The next response is the last one: the connection is old, or has had its requests.
        AfterResponse,
        /// At once: each read and write fails.
        Cut,
    }
}

byte_enum! {
    /// Whether a quiet HTTP/2 connection can rest. Another one is not asked to.
    Replay {
        Impossible,
        /// A new connection of hyper could take the place of this one.
        Possible,
    }
}

byte_enum! {
    /// Whether the stream that hyper or an upgrade reads and writes exists.
    StreamLife {
        Dropped,
        Live,
    }
}
