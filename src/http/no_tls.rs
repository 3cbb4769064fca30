//! The types of TLS without the feature `tls`. They have no values, so the code above does not need
//! to check for the feature.

use std::rc::Rc;
use std::time::Duration;

use crate::error::Error;
use crate::http::conn::handover::HandoverTarget;
use crate::http::conn::socket::Socket;
use crate::http::options::Http;
use crate::keyring::Keyring;
use crate::stats::WorkerStats;

#[derive(Clone, Debug)]
pub(crate) enum Tls {}

#[derive(Clone, Debug)]
pub(crate) enum Acceptor {}

pub(crate) struct ReadFiles {
    pub(crate) contents: Vec<u8>,
    pub(crate) ends: Vec<(String, u64)>,
}

pub(crate) type Secure<I> = I;

impl Tls {
    pub(crate) fn key_lifetime(&self) -> Duration {
        match *self {}
    }

    pub(crate) fn read_files(&self) -> Result<ReadFiles, Error> {
        match *self {}
    }

    pub(crate) fn read_contents(&self, _contents: &[u8]) -> Result<ReadFiles, Error> {
        match *self {}
    }

    pub(crate) fn use_files(&mut self, _files: &[u8]) {
        match *self {}
    }

    pub(crate) fn acceptor(
        &self,
        _http: &Http,
        _keys: impl Fn() -> Option<Keyring> + Send + Sync + 'static,
        _row: WorkerStats,
    ) -> Result<Acceptor, Error> {
        match *self {}
    }
}

impl Acceptor {
    pub(crate) fn accept<I: Socket>(&self, _io: I) -> I {
        match *self {}
    }

    pub(crate) fn handover_target<I>(
        &self,
        _below: Rc<dyn HandoverTarget<I>>,
    ) -> Rc<dyn HandoverTarget<I>> {
        match *self {}
    }
}
