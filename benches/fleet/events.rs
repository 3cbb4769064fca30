//! What happens to the fleet.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use nix::poll::{PollTimeout, poll};
use nix::sys::signal::Signal;

use crate::balancer::{Balancer, Kind};
use crate::instance::{Instance, Manner, Named};
use crate::load::Load;
use crate::network::{BALANCER, Network};
use crate::options::Options;
use crate::outcome::Outcome;
use crate::process::Trouble;
use crate::support::named;
use crate::support::progress::Progress;

named! {
    /// What happens.
    #[derive(ValueEnum)]
    enum Event {
        Restart = "rolling restart",
        Upgrade = "rolling upgrade",
        Scale = "one more, one fewer",
        Kill = "one killed",
        Hang = "one hangs",
        Partition = "one cut off",
        Pods = "pods replaced",
    }
}

impl Event {
    /// Whether an instance fails. If not, nothing may be lost.
    pub(crate) fn is_fault(self) -> bool {
        matches!(self, Self::Kill | Self::Hang | Self::Partition)
    }
}

/// One event of one instance. Times are since the load began.
pub(crate) struct Mark {
    pub(crate) event: Event,
    pub(crate) instance: usize,
    pub(crate) begun: Duration,
    pub(crate) ended: Duration,
}

/// How long a pod has before it is killed, in place of the kubelet's 30 s.
const GRACE: Duration = Duration::from_secs(15);

/// How often the kubelet asks.
const PROBE_PERIOD: Duration = Duration::from_secs(1);

/// A fleet under load. What it has counted is lost if it is dropped before
/// [`finish`](Self::finish).
pub(crate) struct Fleet<'a> {
    load: Load,
    balancer: Box<dyn Balancer>,
    /// Those that run, by number.
    instances: BTreeMap<usize, Instance>,
    /// Those that the balancer has heard of.
    known: BTreeSet<usize>,
    network: Network,
    manner: Manner,
    options: &'a Options,
    marks: Vec<Mark>,
    named: Named,
}

impl<'a> Fleet<'a> {
    /// The calling thread gets a network of its own.
    pub(crate) fn start(kind: Kind, options: &'a Options) -> Result<Self, Trouble> {
        let network = Network::enter(options.instances + 1)?;
        let manner = kind.manner(options);
        let known: BTreeSet<_> = (1..=options.instances).collect();
        let instances = known.iter().map(|&number| {
            let instance = Instance::start(number, network.machine(number), manner)?;
            Ok((number, instance))
        });
        let instances = instances.collect::<Result<_, Trouble>>()?;
        let mut balancer = kind.start(&network)?;
        known.iter().try_for_each(|&it| balancer.put_in(it))?;
        Ok(Self {
            load: Load::start(SocketAddr::from((BALANCER, 80)), options.rate()),
            balancer,
            instances,
            known,
            network,
            manner,
            options,
            marks: Vec::new(),
            named: Named::default(),
        })
    }

    /// All rounds of an event.
    pub(crate) fn play(
        &mut self,
        kind: Kind,
        event: Event,
        progress: &mut Progress,
    ) -> Result<(), Trouble> {
        rest(self.options.pause())?;
        for _ in 0..self.options.count(event) {
            progress.step(event.name(), kind.name());
            let victims = 1..=self.options.victims();
            match event {
                Event::Restart => victims.into_iter().try_for_each(|it| self.restart(it)),
                Event::Upgrade => victims.into_iter().try_for_each(|it| self.upgrade(it)),
                Event::Scale => self.scale(),
                Event::Kill => self.kill(2),
                Event::Hang => self.hang(self.options.instances),
                Event::Partition => self.cut_off(1),
                Event::Pods => self.replace_pods(),
            }?;
        }
        rest(self.options.pause())
    }

    /// Lets the load finish, and then asks the balancer where the requests went.
    pub(crate) fn finish(mut self, kind: Kind) -> Result<Outcome, Trouble> {
        let records = self.load.finish()?;
        let mut running = self.instances.values();
        running.try_for_each(|it| it.signal(Signal::SIGTERM))?;
        for (_, instance) in self.instances {
            self.named.add(instance.ended()?);
        }
        Ok(Outcome {
            kind,
            records,
            routes: self.balancer.routes()?,
            marks: self.marks,
            named: self.named,
        })
    }

    /// What helps to find out why something went wrong.
    pub(crate) fn log(&self) -> String {
        let logs = self.instances.iter();
        let logs = logs.map(|(number, it)| format!("instance {number}:\n{}\n", it.log()));
        format!("balancer:\n{}\n", self.balancer.log()) + &logs.collect::<String>()
    }

    fn begun(&mut self, event: Event, instance: usize) {
        let now = self.load.now();
        self.marks.push(Mark {
            event,
            instance,
            begun: now,
            ended: now,
        });
    }

    fn mark(&mut self) -> &mut Mark {
        self.marks.last_mut().expect("one has begun")
    }

    fn ended(&mut self) {
        self.mark().ended = self.load.now();
    }

    fn take(&mut self, number: usize) -> Instance {
        self.instances.remove(&number).expect("it runs")
    }

    fn instance(&self, number: usize) -> &Instance {
        &self.instances[&number]
    }

    fn start_one(&mut self, number: usize) -> Result<(), Trouble> {
        let machine = self.network.machine(number);
        let instance = Instance::start(number, machine, self.manner)?;
        self.instances.insert(number, instance);
        Ok(())
    }

    /// Asks an instance to end, and waits for it.
    fn end_one(&mut self, number: usize) -> Result<(), Trouble> {
        let instance = self.take(number);
        instance.signal(Signal::SIGTERM)?;
        let named = instance.ended()?;
        self.named.add(named);
        Ok(())
    }

    fn restart(&mut self, number: usize) -> Result<(), Trouble> {
        self.begun(Event::Restart, number);
        self.balancer.take_out(number)?;
        self.end_one(number)?;
        self.start_one(number)?;
        self.balancer.put_in(number)?;
        self.ended();
        Ok(())
    }

    fn upgrade(&mut self, number: usize) -> Result<(), Trouble> {
        self.begun(Event::Upgrade, number);
        self.instance(number).upgrade()?;
        self.ended();
        Ok(())
    }

    fn scale(&mut self) -> Result<(), Trouble> {
        let number = self.options.instances + 1;
        self.begun(Event::Scale, number);
        self.start_one(number)?;
        self.balancer.add(number)?;
        rest(self.options.pause())?;
        self.balancer.remove(number)?;
        self.end_one(number)?;
        self.balancer.forget(number)?;
        self.ended();
        Ok(())
    }

    /// Kills all processes of an instance at once, and starts it again later.
    fn kill(&mut self, number: usize) -> Result<(), Trouble> {
        self.begun(Event::Kill, number);
        let named = self.take(number).kill()?;
        self.named.add(named);
        self.noticed(number)?;
        self.start_one(number)?;
        self.balancer.put_in(number)?;
        self.ended();
        Ok(())
    }

    fn hang(&mut self, number: usize) -> Result<(), Trouble> {
        self.begun(Event::Hang, number);
        let processes = self.instance(number).freeze()?;
        self.noticed(number)?;
        Instance::thaw(&processes)?;
        self.balancer.put_in(number)?;
        self.ended();
        Ok(())
    }

    fn cut_off(&mut self, number: usize) -> Result<(), Trouble> {
        self.begun(Event::Partition, number);
        self.network.cut(number)?;
        self.noticed(number)?;
        self.network.mend(number)?;
        self.balancer.put_in(number)?;
        self.ended();
        Ok(())
    }

    /// Waits until the balancer has noticed, and then until the fault has lasted long enough.
    fn noticed(&mut self, number: usize) -> Result<(), Trouble> {
        self.balancer.until_noticed(number)?;
        let (now, end) = (self.load.now(), self.mark().begun + self.options.fault());
        rest(end.saturating_sub(now))
    }

    /// As a Deployment does with `maxSurge: 1` and `maxUnavailable: 0`: a new pod is ready before
    /// an old one ends.
    fn replace_pods(&mut self) -> Result<(), Trouble> {
        let machines = 1..=self.options.instances + 1;
        for _ in 0..self.options.victims() {
            let free = machines.clone().find(|it| !self.instances.contains_key(it));
            let new = free.expect("there is a machine more than pods");
            // The one that has run for the longest time.
            let old = new % (self.options.instances + 1) + 1;
            self.begun(Event::Pods, old);
            self.start_one(new)?;
            while !self.instance(new).is_ready() {
                rest(PROBE_PERIOD)?;
            }
            match self.known.insert(new) {
                true => self.balancer.add(new)?,
                false => self.balancer.put_in(new)?,
            }
            self.end_pod(old)?;
            self.ended();
        }
        Ok(())
    }

    /// The kubelet's sequence: `preStop`, TERM, and KILL at the end of the grace period. It begins
    /// at the moment at which the pod leaves its Service, and the balancer hears of that later.
    fn end_pod(&mut self, number: usize) -> Result<(), Trouble> {
        let begun = Instant::now();
        let (removal, term) = (
            self.options.endpoint_delay(),
            self.options.pre_stop_of_pods(),
        );
        let after = |delay: Duration| rest(delay.saturating_sub(begun.elapsed()));
        if removal < term {
            after(removal)?;
            self.balancer.take_out(number)?;
        }
        after(term)?;
        let instance = self.take(number);
        instance.signal(Signal::SIGTERM)?;
        if removal >= term {
            after(removal)?;
            self.balancer.take_out(number)?;
        }
        let named = instance.ended_before(begun + GRACE)?;
        self.named.add(named);
        Ok(())
    }
}

fn rest(time: Duration) -> Result<(), Trouble> {
    let millis = u32::try_from(time.as_millis()).expect("nobody rests that long");
    poll(&mut [], PollTimeout::try_from(millis).expect("it is short"))?;
    Ok(())
}
