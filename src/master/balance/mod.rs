//! Even loads: [`collect`] reads what the workers count and tells them what to give away,
//! [`policy`] decides how many connections go from which worker to which.

mod collect;
mod policy;

pub(super) use self::collect::first_look;
