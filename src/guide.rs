//! The guide: one page for each subject that the README is too short for.
//!
//! Begin with [`how_it_works`]. The pages `from_...` are for users of other servers, and [`design`]
//! is for contributors.

#[doc = include_str!("guide/how_it_works.md")]
pub mod how_it_works {}

#[doc = include_str!("guide/options.md")]
pub mod options {}

#[doc = include_str!("guide/files.md")]
pub mod files {}

#[doc = include_str!("guide/notices.md")]
pub mod notices {}

#[doc = include_str!("guide/logs.md")]
pub mod logs {}

#[doc = include_str!("guide/metrics.md")]
pub mod metrics {}

#[doc = include_str!("guide/live_page.md")]
pub mod live_page {}

#[doc = include_str!("guide/verbs.md")]
pub mod verbs {}

#[cfg(feature = "tls")]
#[doc = include_str!("guide/https.md")]
pub mod https {}

#[cfg(feature = "http2")]
#[doc = include_str!("guide/http2.md")]
pub mod http2 {}

#[cfg(feature = "tower")]
#[doc = include_str!("guide/frameworks.md")]
pub mod frameworks {}

#[doc = include_str!("guide/websockets.md")]
pub mod websockets {}

#[doc = include_str!("guide/testing.md")]
pub mod testing {}

#[doc = include_str!("guide/upgrading.md")]
pub mod upgrading {}

#[doc = include_str!("guide/privileges.md")]
pub mod privileges {}

#[doc = include_str!("guide/load_balancers.md")]
pub mod load_balancers {}

#[doc = include_str!("guide/init_systems.md")]
pub mod init_systems {}

#[doc = include_str!("guide/tuning.md")]
pub mod tuning {}

#[doc = include_str!("guide/sizing.md")]
pub mod sizing {}

#[cfg(feature = "tower")]
#[doc = include_str!("guide/from_tokio.md")]
pub mod from_tokio {}

#[doc = include_str!("guide/from_fasthttp.md")]
pub mod from_fasthttp {}

#[doc = include_str!("guide/from_forker.md")]
pub mod from_forker {}

#[doc = include_str!("guide/from_gunicorn.md")]
pub mod from_gunicorn {}

#[doc = include_str!("guide/from_nginx.md")]
pub mod from_nginx {}

#[doc = include_str!("guide/design.md")]
pub mod design {}
