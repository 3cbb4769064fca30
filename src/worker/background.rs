//! Background tasks that a worker must not go on without: the timeouts, and the messages of the
//! master.

use std::future::{Future, poll_fn};
use std::panic::resume_unwind;
use std::pin::pin;
use std::task::Poll;

use tokio::task::JoinSet;

/// Runs `work` while `tasks` run on this thread. At its end it drops the tasks that still run. If
/// one of them panics, this panics too.
pub(crate) async fn run_with<T>(mut tasks: JoinSet<()>, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    poll_fn(|cx| {
        while let Poll::Ready(Some(ended)) = tasks.poll_join_next(cx) {
            if let Err(error) = ended
                && let Ok(panic) = error.try_into_panic()
            {
                resume_unwind(panic);
            }
        }
        work.as_mut().poll(cx)
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use tokio::task::yield_now;

    use super::*;

    fn run<T>(future: impl Future<Output = T>) -> T {
        let runtime = crate::worker::runtime().expect("a runtime");
        runtime.block_on(future)
    }

    #[test]
    fn a_task_that_panics_ends_the_work() {
        let end = catch_unwind(AssertUnwindSafe(|| {
            run(async {
                let mut tasks = JoinSet::new();
                tasks.spawn_local(async {
                    yield_now().await;
                    panic!("out of ticks");
                });
                run_with(tasks, pending::<()>()).await;
            });
        }));
        let panic = end.expect_err("the work has no end of its own");
        assert_eq!(panic.downcast_ref(), Some(&"out of ticks"));
    }

    #[test]
    fn a_task_that_ends_does_not_end_the_work() {
        let done = run(async {
            let mut tasks = JoinSet::new();
            tasks.spawn_local(async {});
            tasks.spawn_local(pending());
            let work = async {
                yield_now().await;
                yield_now().await;
                "done"
            };
            run_with(tasks, work).await
        });
        assert_eq!(done, "done");
    }
}
