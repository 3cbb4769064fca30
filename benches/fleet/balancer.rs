//! A balancer before the fleet, run with the file of `examples/deploy` that users get.

use std::collections::BTreeMap;

use clap::ValueEnum;

use crate::haproxy::Haproxy;
use crate::instance::{Manner, Probe};
use crate::network::Network;
use crate::nginx::Nginx;
use crate::options::Options;
use crate::process::Trouble;
use crate::support::named;

named! {
    /// A balancer, and how it talks to the instances.
    #[derive(ValueEnum)]
    enum Kind {
        /// HTTP/1 with a PROXY header; asks `/readyz` of the admin address.
        Haproxy = "HAProxy, HTTP/1",
        /// HTTP/2 without TLS; asks `--health-path`.
        HaproxyH2c = "HAProxy, h2c",
        /// HTTP/1; asks nothing.
        Nginx = "nginx",
        /// HAProxy in the place of the Service of Kubernetes: no checks, and no second try.
        Service = "Service of Kubernetes",
    }
}

impl Kind {
    pub(crate) fn start(self, network: &Network) -> Result<Box<dyn Balancer>, Trouble> {
        Ok(match self {
            Self::Nginx => Box::new(Nginx::start(network.balancer())?),
            _ => Box::new(Haproxy::start(self, network.balancer())?),
        })
    }

    /// How the instances are to be.
    pub(crate) fn manner(self, options: &Options) -> Manner {
        Manner {
            probe: match self {
                Self::HaproxyH2c => Probe::HealthPath,
                _ => Probe::Readyz,
            },
            names_clients: matches!(self, Self::Haproxy | Self::Service),
            workers: 2,
            pre_stop: match self {
                Self::Haproxy | Self::HaproxyH2c => options.pre_stop(),
                // nginx is told by its file, and Kubernetes has a `preStop` of its own.
                Self::Nginx | Self::Service => std::time::Duration::ZERO,
            },
        }
    }
}

/// Instances have their numbers. Each command returns when it has its effect.
pub(crate) trait Balancer {
    /// Before an instance is asked to end. A balancer that asks for health needs no such command.
    fn take_out(&mut self, _instance: usize) -> Result<(), Trouble> {
        Ok(())
    }

    /// Waits until an instance that is back gets requests.
    fn put_in(&mut self, instance: usize) -> Result<(), Trouble>;

    /// Waits until no requests go to an instance that has failed, if the balancer asks for health.
    fn until_noticed(&mut self, _instance: usize) -> Result<(), Trouble> {
        Ok(())
    }

    /// An instance more.
    fn add(&mut self, instance: usize) -> Result<(), Trouble>;

    /// An instance fewer. No request is on its way to it when this returns.
    fn remove(&mut self, instance: usize) -> Result<(), Trouble>;

    /// Forgets what [`remove`](Self::remove) took out, which has ended now.
    fn forget(&mut self, _instance: usize) -> Result<(), Trouble> {
        Ok(())
    }

    /// Where the requests went, by its log.
    fn routes(&self) -> Result<Routes, Trouble>;

    /// The end of its log.
    fn log(&self) -> String;
}

/// By the request's number.
pub(crate) type Routes = BTreeMap<usize, Route>;

/// Where a request went.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    /// The instances that had it, as far as the log says.
    pub(crate) instances: Vec<usize>,
    /// Whether more than one had it.
    pub(crate) is_retried: bool,
    /// What the log says of its end.
    pub(crate) end: String,
}

/// The number in `"PUT /12 HTTP/1.1"`, which a line of a log has at its only space before a slash.
pub(crate) fn number_in(line: &str) -> Option<usize> {
    let (_, rest) = line.split_once("\"P")?;
    let (_, rest) = rest.split_once(" /")?;
    rest.split(' ').next()?.parse().ok()
}

/// The instance with this address, such as `10.0.0.11:8080`.
pub(crate) fn instance_at(address: &str) -> Option<usize> {
    let (host, _) = address.split_once(':')?;
    let last: usize = host.rsplit('.').next()?.parse().ok()?;
    last.checked_sub(10)
}
