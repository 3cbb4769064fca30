//! Option values by name, as command lines and configuration files write them.

use std::error::Error;
use std::fmt;

/// Why a text is not the name of a value: names the text and the values that there are.
///
/// ```
/// use prefork_server::Balance;
///
/// let error = "Off".parse::<Balance>().expect_err("names are in lower case");
/// assert_eq!(error.to_string(), "`Off` is not one of: even, off");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameError {
    text: String,
    names: &'static [&'static str],
}

/// `named!(Type { "name" = Variant, ... })`: the names of all values, `FromStr` and `Display`.
macro_rules! named {
    ($type:ident { $($name:literal = $variant:ident),+ $(,)? }) => {
        impl $type {
            /// Every value by the name that `FromStr` reads and `Display` writes.
            pub const NAMES: &'static [&'static str] = &[$($name),+];
        }

        impl ::std::str::FromStr for $type {
            type Err = $crate::named::NameError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match text {
                    $($name => Ok(Self::$variant),)+
                    _ => Err($crate::named::NameError::new(text, Self::NAMES)),
                }
            }
        }

        impl ::std::fmt::Display for $type {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(match self {
                    $(Self::$variant => $name),+
                })
            }
        }
    };
}
pub(crate) use named;

impl NameError {
    pub(crate) fn new(text: &str, names: &'static [&'static str]) -> Self {
        let text = text.to_owned();
        Self { text, names }
    }
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { text, names } = self;
        write!(f, "`{text}` is not one of: {}", names.join(", "))
    }
}

impl Error for NameError {}
