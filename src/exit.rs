//! What `main` returns, so that a program exits with the documented code.

use std::cell::RefCell;
use std::error::Error as StdError;
use std::io::{self, Write};
use std::iter;
use std::process::{ExitCode, Termination};

use crate::error::{BoxError, Error, chain};

/// How a program ends. `main` returns it.
///
/// It is made of what [`serve`](crate::Prefork::serve) or [`run`](crate::Prefork::run) has
/// returned. If that is an error, the program prints `Error: `, the error and its causes on one
/// line of standard error, and exits with [`Error::exit_code`]: 2 for a bad setting, 3 if no worker
/// became ready or one exited with [`EXIT_MISCONFIGURED`](crate::EXIT_MISCONFIGURED), 4 for the
/// crash limit, 5 if an address cannot be bound, else 1. Without an error it prints nothing and
/// exits with 0.
///
/// ```no_run
/// use prefork_server::{Exit, Prefork, Response, handler};
///
/// fn main() -> Exit {
///     Prefork::bind("127.0.0.1:8080")
///         .serve(async |_worker| Ok(handler(async |_request| Ok(Response::new("hello".into())))))
///         .into()
/// }
/// ```
///
/// Each type of error will do, also anyhow's. If an [`Error`] is among the causes of another error,
/// it decides the code, also if a type hides it and has its text; an error without it has the code
/// 1. So a program with other steps puts them into a function:
///
/// ```no_run
/// use prefork_server::{BoxError, Exit, Prefork, Response, handler};
///
/// fn run() -> Result<(), BoxError> {
///     let greeting = std::fs::read_to_string("greeting.txt")?;
///     Prefork::bind("127.0.0.1:8080").serve(async move |_worker| {
///         Ok(handler(move |_request| {
///             let greeting = greeting.clone();
///             async { Ok(Response::new(greeting.into())) }
///         }))
///     })?;
///     Ok(())
/// }
///
/// fn main() -> Exit {
///     run().into()
/// }
/// ```
///
/// A `main` that returns `Result<(), Error>` prints the same line, but exits with 1 for each error
/// ([`Termination`]).
#[derive(Debug)]
#[must_use]
pub struct Exit(Result<(), BoxError>);

impl<E: Into<BoxError>> From<Result<(), E>> for Exit {
    fn from(result: Result<(), E>) -> Self {
        Self(result.map_err(Into::into))
    }
}

impl Termination for Exit {
    fn report(self) -> ExitCode {
        let Err(error) = self.0 else {
            return ExitCode::SUCCESS;
        };
        // `eprintln!` panics if the reader of standard error has left.
        let _ = writeln!(io::stderr(), "Error: {}", chain(&*error));
        ExitCode::from(code(&*error))
    }
}

thread_local! {
    /// The text and the exit code of the last error that this thread got from `serve` or `run`.
    static LAST: RefCell<Option<(String, u8)>> = const { RefCell::new(None) };
}

/// Keeps the exit code of an error that the program gets. The program may wrap the error in a type
/// that tells its text only, as anyhow's does.
pub(crate) fn note(error: &Error) {
    LAST.set(Some((error.to_string(), error.exit_code())));
}

/// The exit code of the first [`Error`] among an error and its causes.
fn code(error: &(dyn StdError + 'static)) -> u8 {
    iter::successors(Some(error), |&error| error.source())
        .find_map(code_of_one)
        .unwrap_or(1)
}

fn code_of_one(error: &(dyn StdError + 'static)) -> Option<u8> {
    if let Some(error) = error.downcast_ref::<Error>() {
        return Some(error.exit_code());
    }
    let text = error.to_string();
    LAST.with_borrow(|last| {
        last.as_ref()
            .filter(|(said, _)| *said == text)
            .map(|&(_, code)| code)
    })
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use super::*;
    use crate::{Prefork, Response, Worker, handler};

    /// As an app adds what it was about to do.
    #[derive(Debug)]
    struct Context(Error);

    impl fmt::Display for Context {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("cannot serve")
        }
    }

    impl StdError for Context {
        fn source(&self) -> Option<&(dyn StdError + 'static)> {
            Some(&self.0)
        }
    }

    /// As anyhow wraps an error: it has the text and the causes, and not the type.
    #[derive(Debug)]
    struct Wrapped(Error);

    impl fmt::Display for Wrapped {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.fmt(f)
        }
    }

    impl StdError for Wrapped {
        fn source(&self) -> Option<&(dyn StdError + 'static)> {
            self.0.source()
        }
    }

    #[test]
    fn an_error_of_the_server_decides_the_code_also_if_its_type_is_hidden() {
        let app = async |_: Worker| Ok(handler(async |_| Ok(Response::default())));
        let refused = || {
            Prefork::bind("no address")
                .serve(app)
                .expect_err("no address")
        };
        assert_eq!(code(&Wrapped(refused())), 2);
        assert_eq!(code(&io::Error::other(refused())), 2);
        assert_eq!(code(&*BoxError::from(refused().to_string())), 2);
        assert_eq!(code(&io::Error::other("disk full")), 1);
    }

    #[test]
    fn an_error_of_the_server_decides_the_code_also_behind_others() {
        let error = || Error::Config("0 workers".into());
        assert_eq!(code(&error()), 2);
        assert_eq!(code(&Error::App(error().into())), 1);
        assert_eq!(code(&Context(error())), 2);
        assert_eq!(chain(&Context(error())), "cannot serve: 0 workers");
        assert_eq!(
            format!("{:?}", Error::App(error().into())),
            "the app failed: 0 workers"
        );
        assert_eq!(code(&io::Error::other("disk full")), 1);
    }
}
