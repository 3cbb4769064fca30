//! A directory that changes between requests and within responses, as the bytes of a fuzz input
//! say.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::*;
use crate::files::version::SETTLED;

/// The files. A compressed sibling, a directory's page, and one in a directory are among them.
const NAMES: [&str; 5] = ["a", "a.gz", "b", "d/c", "d/index.html"];

/// The paths that are asked for.
const PATHS: [&str; 7] = [
    "/a",
    "/b",
    "/d/c",
    "/d/",
    "/d",
    "/d/none",
    "/%2e%2e/secret.txt",
];

/// What a symbolic link leads to.
const TARGETS: [&str; 6] = ["../secret.txt", "b", "d", "..", "a", "none"];

/// The lengths of a version: within one piece, and in two. Each version is one byte longer than the
/// version before it, so that no two have the same identity.
const LENGTHS: [usize; 2] = [40, budget::PIECE_MAX + 4_000];

/// A response whose body is read later.
struct Download {
    response: Response<FileBody>,
    content: Vec<u8>,
    /// What the response may have.
    versions: Vec<Vec<u8>>,
    /// The changes in place before it.
    cut: usize,
}

struct Play {
    world: World,
    made: usize,
    /// Whole files that a name had since the cache was last told to look again.
    versions: Vec<Vec<u8>>,
    /// How often a file was changed in place.
    cut: usize,
    /// The body that each strong tag had.
    tagged: BTreeMap<String, Bytes>,
    download: Option<Download>,
}

/// Plays all steps. It panics if a response has bytes that it must not have.
pub(super) async fn play(steps: &[u8]) {
    SETTLED.set(true);
    let mut play = Play {
        world: World::new(&[]),
        made: 0,
        versions: Vec::new(),
        cut: 0,
        tagged: BTreeMap::new(),
        download: None,
    };
    fs::create_dir(play.world.path("d")).expect("a directory");
    let secret = play.world.root.path().join("secret");
    fs::create_dir(&secret).expect("a directory");
    for name in ["c", "index.html"] {
        fs::write(secret.join(name), SECRET).expect("a file");
    }
    for step in steps.chunks_exact(2).take(32) {
        play.step(step[0], step[1].into()).await;
    }
    play.finish_download().await;
    SETTLED.set(false);
}

impl Play {
    async fn step(&mut self, step: u8, choice: usize) {
        let name = NAMES[choice % NAMES.len()];
        match step % 12 {
            0..4 => self.ask(choice).await,
            4 | 5 => self.replace(name, LENGTHS[choice / NAMES.len() % LENGTHS.len()]),
            6 => self.remove(name),
            7 => self.link(name, TARGETS[choice / NAMES.len() % TARGETS.len()]),
            8 => self.cut(name),
            9 => self.look_again(),
            10 => self.swap_directory(),
            _ => match self.download.is_some() {
                true => self.finish_download().await,
                false => self.begin_download(choice).await,
            },
        }
    }

    /// As a deployment does it. Nothing happens if a directory has the name.
    fn replace(&mut self, name: &str, length: usize) {
        self.made += 1;
        let mut content = format!("{name}, version {}. ", self.made).repeat(length / 8);
        content.truncate(length + self.made);
        fs::write(self.world.path("next"), &content).expect("a file");
        if fs::rename(self.world.path("next"), self.world.path(name)).is_ok() {
            self.versions.push(content.into());
        }
    }

    fn remove(&self, name: &str) {
        let _ = fs::remove_file(self.world.path(name));
    }

    fn link(&self, name: &str, target: &str) {
        self.remove(name);
        let _ = symlink(target, self.world.path(name));
    }

    /// Makes a file shorter in its place. What the name leads to may be outside.
    fn cut(&mut self, name: &str) {
        let path = self.world.path(name);
        let is_file = fs::symlink_metadata(&path).is_ok_and(|it| it.is_file());
        if let Some(content) = fs::read(&path).ok().filter(|_| is_file) {
            self.made += 1;
            let length = content.len() / 40_000 * 20_000 + self.made;
            let start = content[..length.min(content.len())].to_vec();
            let file = fs::File::options().write(true).open(path).expect("a file");
            file.set_len(start.len() as u64).expect("it is a file");
            self.versions.push(start);
            self.cut += 1;
        }
    }

    /// The directory becomes a link to one outside, or comes back.
    fn swap_directory(&self) {
        let (dir, away) = (self.world.path("d"), self.world.path("away"));
        if away.exists() {
            fs::remove_file(&dir).expect("a link");
            fs::rename(away, dir).expect("a directory");
        } else {
            fs::rename(&dir, away).expect("a directory");
            symlink("../secret", dir).expect("a link");
        }
    }

    /// A second has passed: what was there before it must not be seen any more.
    fn look_again(&mut self) {
        self.world.site.expire();
        self.versions = files_in(self.world.path(""));
    }

    fn request(choice: usize) -> Builder {
        let request = Request::get(PATHS[choice % PATHS.len()]);
        match choice / PATHS.len() % 4 {
            0 => request,
            1 => request.header(ACCEPT_ENCODING, "gzip"),
            2 => request.header(RANGE, "bytes=5-20"),
            _ => request.header(RANGE, "bytes=-7"),
        }
    }

    async fn ask(&mut self, choice: usize) {
        let response = self.world.send(Self::request(choice)).await;
        assert_response(&response, self.versions.iter().map(Vec::as_slice));
        let tag = header(&response, ETAG).to_owned();
        if response.status() == 200 && tag.starts_with('"') {
            let body = response.into_body();
            let known = self.tagged.entry(tag).or_insert_with(|| body.clone());
            assert!(*known == body, "two bodies have one strong tag");
        }
    }

    async fn begin_download(&mut self, choice: usize) {
        let mut response = begin(&self.world.site, Self::request(choice)).await;
        let mut content = Vec::new();
        if let Some(Ok(frame)) = response.body_mut().frame().await {
            content.extend(Bytes::from(frame.into_data().expect("no trailers")));
        }
        self.download = Some(Download {
            response,
            content,
            versions: self.versions.clone(),
            cut: self.cut,
        });
    }

    async fn finish_download(&mut self) {
        let Some(mut download) = self.download.take() else {
            return;
        };
        match try_collect(download.response).await {
            Ok(rest) => {
                download.content.extend_from_slice(rest.body());
                let response = rest.map(|_| download.content.into());
                assert_response(&response, download.versions.iter().map(Vec::as_slice));
            }
            Err(error) => assert!(self.cut > download.cut, "{error}"),
        }
    }
}

/// The contents of the regular files in a directory and below it.
fn files_in(dir: PathBuf) -> Vec<Vec<u8>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).expect("a directory") {
        let entry = entry.expect("an entry");
        let kind = entry.file_type().expect("an entry");
        if kind.is_dir() {
            files.extend(files_in(entry.path()));
        } else if kind.is_file() {
            files.push(fs::read(entry.path()).expect("a file"));
        }
    }
    files
}
