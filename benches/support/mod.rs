//! What several benches need. Each bench compiles all of it and uses a part.

#![allow(dead_code, unused_imports, reason = "each bench uses another part")]

/// Defines an enum whose variants have names.
macro_rules! named {
    (
        $(#[$attribute:meta])*
        enum $name:ident { $($(#[$doc:meta])* $variant:ident = $text:literal,)+ }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) enum $name { $($(#[$doc])* $variant,)+ }

        impl $name {
            #[allow(dead_code, reason = "some are enumerated")]
            pub(crate) const ALL: &[Self] = &[$(Self::$variant),+];

            pub(crate) const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }
        }
    };
}
pub(crate) use named;

pub(crate) mod cpus;
pub(crate) mod listener;
pub(crate) mod load;
pub(crate) mod machine;
pub(crate) mod notices;
pub(crate) mod options;
pub(crate) mod pem;
pub(crate) mod process;
pub(crate) mod progress;
pub(crate) mod report;
pub(crate) mod toolchain;
pub(crate) mod tree;
pub(crate) mod turns;
