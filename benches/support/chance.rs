//! Chance from a seed, so that a run can be repeated as far as the machine allows.

use std::time::Duration;

/// xorshift64*.
#[derive(Clone, Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        // Zero is the one state that xorshift never leaves; neighbours must not begin alike.
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// A number in `0..count`.
    pub(crate) fn below(&mut self, count: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let high = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32;
        usize::try_from(high).expect("32 bits") % count
    }

    pub(crate) fn millis_below(&mut self, count: usize) -> Duration {
        Duration::from_millis(self.below(count) as u64)
    }
}
