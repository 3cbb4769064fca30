//! Room for what is read, and for the fields of requests and answers. A connection has some while
//! it has something to understand or to answer, and no longer: what serves thousands that are busy
//! now and then is a few rooms, which stay in the cache.

use bytes::BytesMut;
use http::HeaderMap;

use crate::pool::Spare;

/// As many of each are kept for later.
const KEPT_MAX: usize = 32;

/// New room for input takes more than most heads have. It may grow to what is read at once.
const INPUT_MIN: usize = 1024;

/// Room for more fields than this was for a rare request, and is not kept.
const FIELDS_MAX: usize = 64;

/// See the module's head.
pub(super) struct Rooms {
    inputs: Spare<BytesMut>,
    fields: Spare<HeaderMap>,
}

impl Rooms {
    pub(super) fn new() -> Self {
        Self {
            inputs: Spare::new(KEPT_MAX),
            fields: Spare::new(KEPT_MAX),
        }
    }

    /// Empty.
    pub(super) fn input(&self) -> BytesMut {
        let kept = self.inputs.take();
        kept.unwrap_or_else(|| BytesMut::with_capacity(INPUT_MIN))
    }

    /// Takes it back. It is empty.
    pub(super) fn keep_input(&self, input: BytesMut) {
        self.inputs.keep(input);
    }

    /// Empty.
    pub(super) fn fields(&self) -> HeaderMap {
        self.fields.take().unwrap_or_default()
    }

    /// Takes it back, and empties it.
    pub(super) fn keep_fields(&self, mut fields: HeaderMap) {
        if (1..=FIELDS_MAX).contains(&fields.capacity()) {
            fields.clear();
            self.fields.keep(fields);
        }
    }
}
