//! The timer wheel: which connections are looked at on which tick.
//!
//! It is a ring of doubly linked lists, one for each of the next ticks. The links are in an array
//! that is as long as the slab of connections. So to put a connection in and to take it out costs
//! the same for any number of connections, and a connection that ends leaves nothing behind.

/// Number of ticks ahead that a connection can be put. For deadlines further away, the connection
/// is looked at again at the end of the ring; with 64 that is about every 16 s at the slowest tick.
const SPOKES: u64 = 64;

/// No neighbour, or not in the ring.
const NONE: u32 = u32::MAX;

/// A tick of the registry's clock, counted from the start of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Tick(pub(crate) u64);

impl Tick {
    /// The tick that is `ticks` later.
    pub(crate) fn after(self, ticks: u64) -> Self {
        Self(self.0.saturating_add(ticks))
    }
}

/// The ring. Its keys are those of the slab of connections.
#[derive(Debug)]
pub(crate) struct Wheel {
    heads: [u32; SPOKES as usize],
    links: Vec<Link>,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    spoke: u32,
    previous: u32,
    next: u32,
}

impl Wheel {
    /// The furthest tick, counted from now, that [`Wheel::put`] takes.
    pub(crate) const REACH: u64 = SPOKES - 1;

    pub(crate) fn new() -> Self {
        Self {
            heads: [NONE; SPOKES as usize],
            links: Vec::new(),
        }
    }

    /// Puts `key` at the tick `due`, and takes it from its earlier tick: a key is in the ring once.
    pub(crate) fn put(&mut self, key: usize, due: Tick) {
        self.remove(key);
        if self.links.len() <= key {
            self.links.resize(
                key + 1,
                Link {
                    spoke: NONE,
                    previous: NONE,
                    next: NONE,
                },
            );
        }
        let spoke = (due.0 % SPOKES) as usize;
        let next = self.heads[spoke];
        let this = u32::try_from(key).expect("a process has fewer than 2^32 descriptors");
        if next != NONE {
            self.links[next as usize].previous = this;
        }
        self.links[key] = Link {
            spoke: spoke as u32,
            previous: NONE,
            next,
        };
        self.heads[spoke] = this;
    }

    /// Takes `key` out, if it is in.
    pub(crate) fn remove(&mut self, key: usize) {
        let Some(&Link {
            spoke,
            previous,
            next,
        }) = self.links.get(key)
        else {
            return;
        };
        if spoke == NONE {
            return;
        }
        match previous {
            NONE => self.heads[spoke as usize] = next,
            previous => self.links[previous as usize].next = next,
        }
        if next != NONE {
            self.links[next as usize].previous = previous;
        }
        self.links[key].spoke = NONE;
    }

    /// Takes out one of the keys at `tick`, if there is one.
    pub(crate) fn take(&mut self, tick: Tick) -> Option<usize> {
        let key = match self.heads[(tick.0 % SPOKES) as usize] {
            NONE => return None,
            key => key as usize,
        };
        self.remove(key);
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(wheel: &mut Wheel, tick: u64) -> Vec<usize> {
        let mut keys: Vec<_> = std::iter::from_fn(|| wheel.take(Tick(tick))).collect();
        keys.sort_unstable();
        keys
    }

    #[test]
    fn keys_come_out_at_the_tick_they_were_put_at() {
        let mut wheel = Wheel::new();
        for key in 0..6 {
            wheel.put(key, Tick(10 + key as u64 % 2));
        }
        assert_eq!(due(&mut wheel, 9), [0_usize; 0]);
        assert_eq!(due(&mut wheel, 10), [0, 2, 4]);
        assert_eq!(due(&mut wheel, 11), [1, 3, 5]);
        assert_eq!(
            due(&mut wheel, 10 + SPOKES),
            [0_usize; 0],
            "a taken key is out"
        );
    }

    #[test]
    fn a_key_that_is_put_again_moves() {
        let mut wheel = Wheel::new();
        wheel.put(3, Tick(5));
        wheel.put(3, Tick(5 + Wheel::REACH));
        assert_eq!(due(&mut wheel, 5), [0_usize; 0]);
        assert_eq!(due(&mut wheel, 5 + Wheel::REACH), [3]);
    }

    #[test]
    fn removal_works_at_the_head_in_the_middle_and_at_the_end() {
        for gone in 0..3 {
            let mut wheel = Wheel::new();
            (0..3).for_each(|key| wheel.put(key, Tick(7)));
            wheel.remove(gone);
            wheel.remove(gone);
            let left: Vec<_> = (0..3).filter(|&key| key != gone).collect();
            assert_eq!(due(&mut wheel, 7), left);
        }
    }
}
