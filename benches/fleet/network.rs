//! Machines on one network: each is a network namespace, all are joined by a bridge in a further
//! one. A namespace lives as long as a process in it, and the process is beneath a keeper. So the
//! kernel removes namespaces and links when the bench ends, also if the bench is killed.

use std::fs::{self, File};
use std::io::Write;
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};

use nix::sched::{CloneFlags, setns};
use nix::unistd::geteuid;

use crate::process::{Processes, Trouble, is_alive, until};
use crate::support::toolchain::found;

/// The machine of the clients has the bridge.
pub(crate) const CLIENTS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

pub(crate) const BALANCER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

/// The machine of an instance, which are counted from 1.
pub(crate) fn address_of(instance: usize) -> Ipv4Addr {
    let last = u8::try_from(10 + instance).expect("a fleet is small");
    Ipv4Addr::new(10, 0, 0, last)
}

pub(crate) struct Network {
    clients: Namespace,
    balancer: Namespace,
    instances: Vec<Namespace>,
}

impl Network {
    /// Machines for the clients, a balancer and so many instances. The calling thread is on the
    /// clients' machine from now on, and so are the threads that it starts.
    pub(crate) fn enter(instances: usize) -> Result<Self, Trouble> {
        for program in ["ip", "nsenter", "unshare"] {
            found(program)?;
        }
        if !geteuid().is_root() {
            let why = "network namespaces need root";
            return Err(Trouble::NotSupported(why.into()));
        }
        let clients = Namespace::new()?;
        clients.ip(&format!(
            "link set lo up\nlink add br0 type bridge\naddr add {CLIENTS}/24 dev br0\n\
             link set br0 up\n"
        ))?;
        let balancer = Namespace::new()?;
        clients.join(&balancer, "balancer", BALANCER)?;
        let instances = (1..=instances).map(|instance| {
            let namespace = Namespace::new()?;
            clients.join(&namespace, &link_of(instance), address_of(instance))?;
            Ok(namespace)
        });
        let instances = instances.collect::<Result<Vec<_>, Trouble>>()?;
        setns(File::open(clients.path())?, CloneFlags::CLONE_NEWNET)?;
        Ok(Self {
            clients,
            balancer,
            instances,
        })
    }

    pub(crate) fn balancer(&self) -> &Namespace {
        &self.balancer
    }

    pub(crate) fn machine(&self, instance: usize) -> &Namespace {
        &self.instances[instance - 1]
    }

    /// Cuts the link of an instance: what is sent to it or by it is lost, and nobody is told.
    pub(crate) fn cut(&self, instance: usize) -> Result<(), Trouble> {
        self.clients
            .ip(&format!("link set {} down\n", link_of(instance)))
    }

    pub(crate) fn mend(&self, instance: usize) -> Result<(), Trouble> {
        self.clients
            .ip(&format!("link set {} up\n", link_of(instance)))
    }
}

/// The bridge's end of it.
fn link_of(instance: usize) -> String {
    format!("instance{instance}")
}

pub(crate) struct Namespace(Processes);

impl Namespace {
    fn new() -> Result<Self, Trouble> {
        let mut holder = Command::new("unshare");
        holder.args(["--net", "sleep", "infinity"]);
        let (holder, _) = Processes::start(tempfile::tempdir()?, &holder)?;
        let (namespace, root) = (Self(holder), namespace_of("thread-self"));
        until("a network namespace", || {
            namespace_of(&namespace.0.root().to_string()) != root || !is_alive(namespace.0.root())
        })?;
        match is_alive(namespace.0.root()) {
            true => Ok(namespace),
            false => Err(Trouble::NotSupported(namespace.0.log())),
        }
    }

    /// Gives the other namespace a link to the bridge of this one.
    fn join(&self, other: &Self, link: &str, address: Ipv4Addr) -> Result<(), Trouble> {
        let process = other.0.root();
        self.ip(&format!(
            "link add {link} type veth peer name eth0 netns {process}\n\
             link set {link} master br0 up\n"
        ))?;
        other.ip(&format!(
            "link set lo up\naddr add {address}/24 dev eth0\nlink set eth0 up\n"
        ))
    }

    fn ip(&self, lines: &str) -> Result<(), Trouble> {
        let mut ip = self.command("ip");
        ip.args(["-batch", "-"]).stdin(Stdio::piped());
        let mut ip = ip.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        let mut stdin = ip.stdin.take().expect("it is piped");
        stdin.write_all(lines.as_bytes())?;
        drop(stdin);
        let output = ip.wait_with_output()?;
        match output.status.success() {
            true => Ok(()),
            false => Err(Trouble::Stuck(format!(
                "{lines}: {}",
                String::from_utf8_lossy(&output.stderr)
            ))),
        }
    }

    /// A command for a program in this namespace. It becomes that program.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args([&format!("--net={}", self.path()), program]);
        command
    }

    fn path(&self) -> String {
        format!("/proc/{}/ns/net", self.0.root())
    }
}

fn namespace_of(process: &str) -> Option<std::path::PathBuf> {
    fs::read_link(format!("/proc/{process}/ns/net")).ok()
}
