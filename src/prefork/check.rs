//! A check of the settings, without a start.

use super::Prefork;
use crate::error::Error;
use crate::master;

impl Prefork {
    /// Checks what a start needs, and starts nothing: the settings, the user and group, the files
    /// for TLS, and whether each address could be bound. A server that runs with the same settings
    /// does not notice it, and is no reason to fail. An app and its content are not checked.
    ///
    /// ```
    /// use prefork_server::Prefork;
    ///
    /// let error = Prefork::bind("unix:/missing/socket").check().expect_err("no directory");
    /// assert!(error.to_string().contains("/missing/socket"));
    /// ```
    ///
    /// # Errors
    /// As [`serve`](Self::serve) at its start.
    pub fn check(mut self) -> Result<(), Error> {
        self.parsed()?;
        if let Some(tls) = &self.tls {
            tls.read_files()?;
        }
        master::check::check(self.config)
    }
}
