//! The options that every bench has.

use clap::{Parser, ValueEnum};

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Everything once, and no figures.
    Smoke,
    /// Figures that show that all works, and little else.
    Quick,
    Full,
}

#[derive(Clone, Copy, Debug, Parser)]
pub(crate) struct Common {
    /// Short rounds, and of other people's servers only those that --only names: shows that it
    /// works, and gives no figures worth keeping
    #[arg(long)]
    quick: bool,

    /// Everything once, our own servers only, no figures
    #[arg(long)]
    test: bool,

    /// Given by `cargo bench`. Without it (`cargo test --benches`) this is a test
    #[arg(long, hide = true)]
    bench: bool,
}

impl Common {
    /// Which of all servers are measured: `ours` always, and others as the extent and `--only` say.
    pub(crate) fn servers<T: ValueEnum + PartialEq + Copy>(
        self,
        only: &[T],
        ours: impl Fn(T) -> bool,
    ) -> Vec<T> {
        let wanted = |server: &T| match self.extent() {
            Extent::Smoke => false,
            Extent::Quick => only.contains(server),
            Extent::Full => only.is_empty() || only.contains(server),
        };
        let all = T::value_variants().iter().copied();
        all.filter(|server| ours(*server) || wanted(server))
            .collect()
    }

    pub(crate) fn extent(self) -> Extent {
        match (self.test || !self.bench, self.quick) {
            (true, _) => Extent::Smoke,
            (false, true) => Extent::Quick,
            (false, false) => Extent::Full,
        }
    }
}
