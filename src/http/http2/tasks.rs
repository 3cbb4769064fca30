//! The handlers at work on one connection. They are polled by the connection's task and dropped
//! with it: no handler outlives its connection.

use std::pin::Pin;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Wake, Waker};

use slab::Slab;

use crate::http::registry::state::Activity;

/// One handler and its answer, or one end of a tunnel.
pub(crate) struct Task {
    pub(crate) future: Pin<Box<dyn Future<Output = ()>>>,
    /// `None` is a tunnel.
    pub(crate) stream: Option<Arc<Activity>>,
}

/// See the module's head.
pub(crate) struct Tasks {
    tasks: Slab<Task>,
    /// By the keys of `tasks`; kept for those that come after.
    bells: Vec<(Arc<Bell>, Waker)>,
    due: Arc<Mutex<Due>>,
    turn: Vec<usize>,
}

/// Which tasks are to be polled, and who polls them.
#[derive(Default)]
struct Due {
    keys: Vec<usize>,
    connection: Option<Waker>,
}

/// Puts one task down as due.
struct Bell {
    key: usize,
    rung: AtomicBool,
    due: Arc<Mutex<Due>>,
}

impl Tasks {
    pub(crate) fn new() -> Self {
        Self {
            tasks: Slab::new(),
            bells: Vec::new(),
            due: Arc::default(),
            turn: Vec::new(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Takes one on; it is due at once.
    pub(crate) fn insert(&mut self, task: Task) {
        let key = self.tasks.insert(task);
        if self.bells.len() <= key {
            let bell = Arc::new(Bell {
                key,
                rung: AtomicBool::new(false),
                due: Arc::clone(&self.due),
            });
            let waker = Waker::from(Arc::clone(&bell));
            self.bells.push((bell, waker));
        }
        self.bells[key].0.ring();
    }

    /// Polls each that is due, once, and says whether there were any. The next one that is due
    /// wakes this task.
    pub(crate) fn poll_due(&mut self, cx: &Context<'_>) -> bool {
        {
            let mut due = lock(&self.due);
            match &mut due.connection {
                Some(known) => known.clone_from(cx.waker()),
                None => due.connection = Some(cx.waker().clone()),
            }
            std::mem::swap(&mut due.keys, &mut self.turn);
        }
        let any = !self.turn.is_empty();
        for key in self.turn.drain(..) {
            let (bell, waker) = &self.bells[key];
            bell.rung.store(false, Release);
            // It may be gone, and another in its place: that one is polled in vain.
            let Some(task) = self.tasks.get_mut(key) else {
                continue;
            };
            let polled = task.future.as_mut().poll(&mut Context::from_waker(waker));
            if polled.is_ready() {
                self.tasks.remove(key);
            }
        }
        any
    }

    /// Drops the task of this stream, and says whether it had one.
    pub(crate) fn drop_of(&mut self, stream: &Arc<Activity>) -> bool {
        let is_of = |task: &Task| {
            task.stream
                .as_ref()
                .is_some_and(|of| Arc::ptr_eq(of, stream))
        };
        let key = self.tasks.iter().find(|(_, task)| is_of(task));
        let Some(key) = key.map(|(key, _)| key) else {
            return false;
        };
        self.tasks.remove(key);
        true
    }
}

impl Bell {
    /// Who is to be woken for it.
    fn ring(&self) -> Option<Waker> {
        if self.rung.swap(true, Acquire) {
            return None;
        }
        let mut due = lock(&self.due);
        due.keys.push(self.key);
        due.connection.clone()
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if let Some(connection) = self.ring() {
            connection.wake();
        }
    }
}

fn lock(due: &Mutex<Due>) -> MutexGuard<'_, Due> {
    // Nothing panics while it holds the lock.
    due.lock().unwrap_or_else(PoisonError::into_inner)
}
