//! The file of `--config` as workers get it. A worker that starts after a crash gets what the
//! workers of its generation got, so a reload that was abandoned changes nothing for it.

use prefork_server::Generation;

use crate::cli::config::ConfigFile;

/// The file as the workers of each generation get it.
#[derive(Debug)]
pub(crate) struct Contents {
    /// The oldest generation first. A generation has the last file that is not of a later one.
    /// Empty if no file was named.
    files: Vec<(Generation, ConfigFile)>,
    /// The file of the reload that begins next.
    checked: Option<ConfigFile>,
    /// The newest generation that has a worker, and the newest of which one was ready. Neither is
    /// that of a canary.
    newest: Generation,
    proven: Generation,
    upgrade: Upgrade,
}

/// Whether the binary on disk is being tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Upgrade {
    None,
    Running,
}

impl Contents {
    pub(crate) fn new(file: Option<ConfigFile>) -> Self {
        let files = file.map(|file| (Generation(0), file));
        Self {
            files: files.into_iter().collect(),
            checked: None,
            newest: Generation(0),
            proven: Generation(0),
            upgrade: Upgrade::None,
        }
    }

    /// The file of the present master.
    pub(crate) fn first(&self) -> Option<&ConfigFile> {
        self.files.first().map(|(_, file)| file)
    }

    /// What a worker of this generation gets that starts now. `None` for a canary, which reads the
    /// file itself, as the new master will.
    pub(crate) fn give(&mut self, generation: Generation) -> Option<&ConfigFile> {
        if self.is_canary(generation) {
            return None;
        }
        self.newest = self.newest.max(generation);
        let mut files = self.files.iter().rev();
        let file = files.find(|(since, _)| *since <= generation);
        file.map(|(_, file)| file)
    }

    /// The generation of a canary is later than that of each worker before it.
    fn is_canary(&self, generation: Generation) -> bool {
        self.upgrade == Upgrade::Running && generation > self.newest
    }

    /// The next reload gives this file to its workers.
    pub(crate) fn prepare(&mut self, file: ConfigFile) {
        self.checked = Some(file);
    }

    pub(crate) fn reload_started(&mut self, generation: Generation) {
        let checked = self.checked.take();
        self.files.extend(checked.map(|file| (generation, file)));
    }

    pub(crate) fn reload_abandoned(&mut self, generation: Generation) {
        if self.proven < generation {
            // No worker will be of this generation.
            self.files.retain(|(since, _)| *since != generation);
        }
    }

    pub(crate) fn reload_finished(&mut self, generation: Generation) {
        let is_later = |(since, _): &(Generation, ConfigFile)| *since > generation;
        let end = self.files.iter().position(is_later);
        let end = end.unwrap_or(self.files.len());
        self.files.drain(..end.saturating_sub(1));
    }

    pub(crate) fn worker_ready(&mut self, generation: Generation) {
        if !self.is_canary(generation) {
            self.proven = self.proven.max(generation);
        }
    }

    pub(crate) fn set_upgrade(&mut self, upgrade: Upgrade) {
        self.upgrade = upgrade;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::config::Source;

    fn file(respond: &str) -> ConfigFile {
        let content = format!("respond = \"{respond}\"");
        ConfigFile::parse("a.toml".into(), String::new(), &content, Source::File).unwrap()
    }

    /// The text that a worker of each generation responds with.
    fn given(contents: &mut Contents, generations: &[u32]) -> Vec<String> {
        let generations = generations.iter().map(|&it| Generation(it));
        let given = generations.map(|it| match contents.give(it) {
            Some(file) => file.content().split('"').nth(1).unwrap().to_owned(),
            None => "that of the file".to_owned(),
        });
        given.collect()
    }

    #[test]
    fn a_reload_that_was_abandoned_changes_nothing_for_older_workers() {
        let mut contents = Contents::new(Some(file("good")));
        contents.worker_ready(Generation(1));
        for generation in [2, 3] {
            contents.prepare(file("bad"));
            contents.reload_started(Generation(generation));
            assert_eq!(given(&mut contents, &[generation]), ["bad"]);
            contents.reload_abandoned(Generation(generation));
            assert_eq!(given(&mut contents, &[1]), ["good"]);
            assert_eq!(contents.files.len(), 1);
        }
        // One worker of the next one is ready before it is abandoned.
        contents.prepare(file("bad"));
        contents.reload_started(Generation(4));
        contents.worker_ready(Generation(4));
        contents.reload_abandoned(Generation(4));
        assert_eq!(given(&mut contents, &[1, 4]), ["good", "bad"]);
        contents.prepare(file("new"));
        contents.reload_started(Generation(5));
        contents.worker_ready(Generation(5));
        contents.reload_finished(Generation(5));
        assert_eq!(given(&mut contents, &[5]), ["new"]);
        assert_eq!(contents.files.len(), 1);
    }

    #[test]
    fn only_the_canary_of_an_upgrade_reads_the_file_itself() {
        let mut contents = Contents::new(Some(file("good")));
        assert_eq!(given(&mut contents, &[1]), ["good"]);
        contents.worker_ready(Generation(1));
        contents.set_upgrade(Upgrade::Running);
        let tried = ["good", "that of the file", "good"];
        assert_eq!(given(&mut contents, &[1, 2, 1]), tried);
        contents.worker_ready(Generation(2));
        contents.set_upgrade(Upgrade::None);
        assert_eq!(given(&mut contents, &[1, 3]), ["good", "good"]);
    }
}
