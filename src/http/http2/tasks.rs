//! The handlers that run on one connection. The connection's task polls them, and its end drops
//! them: no handler outlives its connection.

use std::pin::Pin;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Wake, Waker};

use slab::Slab;

use crate::http::registry::state::ConnState;

/// One handler with its response, or one end of a tunnel.
pub(crate) struct Task {
    pub(crate) future: Pin<Box<dyn Future<Output = ()>>>,
    /// `None` for a tunnel.
    pub(crate) stream: Option<Arc<ConnState>>,
}

/// The tasks of one connection.
pub(crate) struct Tasks {
    tasks: Slab<Task>,
    /// By the keys of `tasks`. A later task with the same key uses the same waker.
    wakers: Vec<(Arc<TaskWaker>, Waker)>,
    due: Arc<Mutex<Due>>,
    /// The keys of the tasks that are polled in this round.
    turn: Vec<usize>,
}

/// The tasks to poll, and the waker of the connection's task, which polls them.
#[derive(Default)]
struct Due {
    keys: Vec<usize>,
    connection: Option<Waker>,
}

/// Marks one task as due.
struct TaskWaker {
    key: usize,
    is_marked: AtomicBool,
    due: Arc<Mutex<Due>>,
}

impl Tasks {
    pub(crate) fn new() -> Self {
        Self {
            tasks: Slab::new(),
            wakers: Vec::new(),
            due: Arc::default(),
            turn: Vec::new(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Adds a task, which is due at once.
    pub(crate) fn insert(&mut self, task: Task) {
        let key = self.tasks.insert(task);
        if self.wakers.len() <= key {
            let task_waker = Arc::new(TaskWaker {
                key,
                is_marked: AtomicBool::new(false),
                due: Arc::clone(&self.due),
            });
            let waker = Waker::from(Arc::clone(&task_waker));
            self.wakers.push((task_waker, waker));
        }
        self.wakers[key].0.mark_due();
    }

    /// Polls each due task once, and returns whether there were any. The next task that becomes due
    /// wakes the connection's task.
    pub(crate) fn poll_due(&mut self, cx: &Context<'_>) -> bool {
        {
            let mut due = lock(&self.due);
            match &mut due.connection {
                Some(waker) => waker.clone_from(cx.waker()),
                None => due.connection = Some(cx.waker().clone()),
            }
            std::mem::swap(&mut due.keys, &mut self.turn);
        }
        let any = !self.turn.is_empty();
        for key in self.turn.drain(..) {
            let (task_waker, waker) = &self.wakers[key];
            // Pairs with the swap in `mark_due`. Wakes that found the mark are lost, so this poll
            // has to see what their threads wrote before. A store could be delayed until after the
            // reads of this poll, on x86 too.
            task_waker.is_marked.swap(false, Acquire);
            // The task may have ended. If another task has its key now, this poll does no harm.
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

    /// Drops the task of this stream, and returns whether there was one.
    pub(crate) fn drop_of(&mut self, stream: &Arc<ConnState>) -> bool {
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

impl TaskWaker {
    /// Marks the task as due. Returns the waker of the connection's task, unless the task was
    /// marked already.
    fn mark_due(&self) -> Option<Waker> {
        // What this thread wrote before is seen by the poll that removes the mark.
        if self.is_marked.swap(true, Release) {
            return None;
        }
        let mut due = lock(&self.due);
        due.keys.push(self.key);
        due.connection.clone()
    }
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if let Some(connection) = self.mark_due() {
            connection.wake();
        }
    }
}

fn lock(due: &Mutex<Due>) -> MutexGuard<'_, Due> {
    // Nothing panics while it holds the lock.
    due.lock().unwrap_or_else(PoisonError::into_inner)
}
