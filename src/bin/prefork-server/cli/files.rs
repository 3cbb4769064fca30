//! How the files of `DIR` are served.

use std::path::PathBuf;

use clap::{Arg, Args};
use prefork_server::files::{Files, HeaderRule, Origin, Symlinks};

use super::origin::Known;
use super::serving;
use super::value;

pub(super) const HEADING: &str = "Files";

/// How the files of `DIR` are served.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = HEADING)]
pub(crate) struct FileOptions {
    /// Serve about.html at /about, and redirect /about.html there
    #[arg(long, env = "PREFORK_CLEAN_URLS", value_parser = value::switch)]
    clean_urls: bool,

    /// Serve this file of DIR to browsers that go to a page that does not exist, with status 200:
    /// for apps that have one page. A missing file whose name has a dot stays a 404
    #[arg(long, value_name = "FILE", env = "PREFORK_FALLBACK")]
    fallback: Option<PathBuf>,

    /// Serve this file of DIR as the page of a 404
    #[arg(long, value_name = "FILE", env = "PREFORK_NOT_FOUND_PAGE")]
    not_found_page: Option<PathBuf>,

    /// Show what is in a directory that has no index.html: a page, or JSON if the client prefers it
    #[arg(long, env = "PREFORK_LISTING", value_parser = value::switch)]
    listing: bool,

    /// Compress texts from 1KiB to 8MiB with zstd, brotli or gzip, and keep them. A compressed file
    /// beside the plain one is preferred
    #[arg(long, env = "PREFORK_COMPRESS", value_parser = value::switch)]
    compress: bool,

    /// Let browsers keep files with a hash in their names (index-BdH3kZ9x.js) for a year, and ask
    /// before they use any other file again
    #[arg(long, env = "PREFORK_SAFE_CACHING", value_parser = value::switch)]
    safe_caching: bool,

    /// Add a field to the responses of some files: PATTERN: NAME: VALUE, as in "*.css:
    /// Cache-Control: max-age=60"; may be given several times. ** matches all files
    #[arg(long, value_name = "RULE", env = "PREFORK_HEADER")]
    #[arg(value_delimiter = '\n')]
    header: Vec<HeaderRule>,

    /// Let scripts of this origin read the files (CORS): SCHEME://HOST, or * for all; may be given
    /// several times
    #[arg(long, value_name = "ORIGIN", env = "PREFORK_ALLOW_ORIGIN")]
    #[arg(value_delimiter = ',')]
    allow_origin: Vec<Origin>,

    /// Symbolic links to follow. inside: those that stay in DIR, by relative paths. never: none.
    /// anywhere: all
    #[arg(long, value_name = "MODE", env = "PREFORK_SYMLINKS")]
    #[arg(default_value = "inside")]
    #[arg(value_parser = value::named::<Symlinks>(Symlinks::NAMES))]
    symlinks: Symlinks,

    /// The most memory that each worker uses for what it keeps of files
    #[arg(long, value_name = "SIZE", env = "PREFORK_CACHE_SIZE")]
    #[arg(default_value = "64MiB", value_parser = value::cache_size)]
    cache_size: usize,

    /// Send files of more than 64KiB by sendfile(2), without a copy. Only for files that are
    /// replaced, never cut or overwritten in their place
    #[arg(long, env = "PREFORK_SENDFILE", value_parser = value::switch)]
    sendfile: bool,
}

impl FileOptions {
    /// Whether links may lead to any file.
    pub(crate) fn follows_all_links(&self) -> bool {
        self.symlinks == Symlinks::Anywhere
    }

    /// The files of a directory with these options.
    pub(crate) fn of(&self, directory: PathBuf) -> Files {
        let mut files = Files::new(directory)
            .clean_urls(self.clean_urls)
            .listing(self.listing)
            .compress(self.compress)
            .safe_caching(self.safe_caching)
            .symlinks(self.symlinks)
            .cache_bytes(self.cache_size)
            .sendfile(self.sendfile);
        if let Some(page) = &self.fallback {
            files = files.fallback(page);
        }
        if let Some(page) = &self.not_found_page {
            files = files.not_found_page(page);
        }
        files = self.header.iter().cloned().fold(files, Files::header);
        let origins = self.allow_origin.iter().cloned();
        origins.fold(files, Files::allow_origin)
    }
}

/// Fails if one of these options is given.
pub(super) fn check_without_files(known: &Known<'_>) -> Result<(), String> {
    let mut options = known.command.get_arguments();
    let is_given =
        |option: &&Arg| option.get_help_heading() == Some(HEADING) && known.is_given(option);
    let Some(option) = options.find(is_given) else {
        return Ok(());
    };
    let advice = match serving::sources(known).next() {
        Some(source) => format!(
            "leave it out, or give DIR in place of {}",
            known.name(source)
        ),
        None => "give DIR too".to_owned(),
    };
    let name = known.name(option);
    Err(format!("{name} is about the files of DIR: {advice}"))
}
