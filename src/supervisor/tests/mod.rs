//! Stories, all small worlds, and long random ones; and proof that each would catch a mistake.
//!
//! Everything here drives a [`Machine`](machine::Machine) through
//! [`Watched`](machine::Watched), which checks from outside what `invariants` checks from inside.
//! So a machine that is broken on purpose (`flaws`) can be put in the supervisor's place.

mod exhaustive;
mod flaws;
mod machine;
mod scripts;
mod watch;
mod world;
