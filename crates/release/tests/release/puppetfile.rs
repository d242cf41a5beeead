//! Imports a Puppetfile with modules of git repositories and of a Forge on the loopback interface.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;

use flate2::Compression;
use flate2::write::GzEncoder;
use muster_release::bundle::{digest_of, pack};
use muster_release::puppetfile::Puppetfile;
use muster_release::repos::assemble::{
    AssembleError, AssembledRelease, AssembledRepo, FetchSettings, PinUpdate, assemble,
};
use muster_release::repos::import::{ImportPlan, import, plan};

use crate::repositories::{Site, git, messages};
use crate::support::write;

/// Answers `/v3/…` as the Forge does. Its thread ends with the process of the test.
struct FakeForge {
    address: SocketAddr,
    documents: Arc<Mutex<BTreeMap<String, Vec<u8>>>>,
}

impl FakeForge {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let documents: Arc<Mutex<BTreeMap<String, Vec<u8>>>> = Arc::default();
        let served = documents.clone();
        thread::spawn(move || {
            for connection in listener.incoming() {
                let _ = serve(connection.unwrap(), &served);
            }
        });
        Self { address, documents }
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Publishes a version of `owner-name`, which becomes the newest one.
    fn publish(&self, slug: &str, version: &str, files: &[(&str, &str)]) -> String {
        let archive = archive(&format!("{slug}-{version}"), files);
        let (digest, _) = digest_of(archive.as_slice()).unwrap();
        let uri = format!("/v3/files/{slug}-{version}.tar.gz");
        let release = format!(r#"{{"version":"{version}","file_uri":"{uri}","file_sha256":"{}"}}"#, digest.hex());
        let module = format!(r#"{{"slug":"{slug}","current_release":{release}}}"#);
        let mut documents = self.documents.lock().unwrap();
        documents.insert(uri, archive);
        documents.insert(format!("/v3/releases/{slug}-{version}"), release.into_bytes());
        documents.insert(format!("/v3/modules/{slug}"), module.into_bytes());
        digest.hex().to_owned()
    }
}

fn serve(mut connection: TcpStream, documents: &Mutex<BTreeMap<String, Vec<u8>>>) -> io::Result<()> {
    let mut request = BufReader::new(connection.try_clone()?);
    let mut first = String::new();
    request.read_line(&mut first)?;
    let mut line = String::new();
    while request.read_line(&mut line)? > 2 {
        line.clear();
    }
    let found = documents.lock().unwrap().get(first.split(' ').nth(1).unwrap_or_default()).cloned();
    let (status, body) = found.map_or(("404 Not Found", b"{}".to_vec()), |body| ("200 OK", body));
    write!(connection, "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len())?;
    connection.write_all(&body)
}

fn archive(root: &str, files: &[(&str, &str)]) -> Vec<u8> {
    let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for (path, text) in files {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(text.len() as u64);
        tar.append_data(&mut header, format!("{root}/{path}"), text.as_bytes()).unwrap();
    }
    tar.into_inner().unwrap().finish().unwrap()
}

struct ControlRepository {
    site: Site,
    forge: FakeForge,
}

impl ControlRepository {
    fn new(puppetfile: &str) -> Self {
        let site = Site::new("");
        fs::remove_file(site.path("site/repos.yaml")).unwrap();
        let repository = Self { site, forge: FakeForge::start() };
        repository.write_puppetfile(puppetfile);
        repository
    }

    fn write_puppetfile(&self, text: &str) {
        let text = text.replace("SRC", self.site.path("src").to_str().unwrap()).replace("FORGE", &self.forge.url());
        write(&self.site.path("site"), "Puppetfile", text.as_bytes(), 0o644);
    }

    fn with_settings<T>(&self, update: &PinUpdate, run: impl FnOnce(&Path, &FetchSettings<'_>) -> T) -> T {
        let cache = self.site.path("cache");
        let settings = FetchSettings {
            mirror: None,
            forge: None,
            verify_tags: true,
            cache: &cache,
            parallel: 2,
            update,
            cancel: &self.site.cancel,
        };
        run(&self.site.path("site"), &settings)
    }

    fn import(&self, update: &PinUpdate) -> Result<(ImportPlan, Vec<AssembledRepo>), AssembleError> {
        self.with_settings(update, |directory, settings| {
            let puppetfile = Puppetfile::parse(&fs::read_to_string(directory.join("Puppetfile")).unwrap())?;
            let plan = plan(directory, &puppetfile, settings)?;
            let imported = import(directory, &plan, settings, &|_| {})?;
            Ok((plan, imported))
        })
    }

    fn build(&self) -> Result<AssembledRelease, AssembleError> {
        self.with_settings(&PinUpdate::None, |directory, settings| assemble(directory, settings, &|_| {}))
    }

    fn repos(&self) -> String {
        fs::read_to_string(self.site.path("site/repos.yaml")).unwrap_or_default()
    }
}

const PUPPETFILE: &str = "\
forge 'FORGE'
mod 'puppetlabs/stdlib', '9.6.0'
mod 'puppetlabs/concat', :latest
mod 'apache', git: 'SRC/apache', tag: 'v5.5.0'
mod 'profile', local: true, install_path: 'site'
";

fn repository() -> (ControlRepository, String, String) {
    let repository = ControlRepository::new(PUPPETFILE);
    let stdlib = [("metadata.json", "{}"), ("lib/x.rb", "1"), ("spec/x_spec.rb", "2")];
    let digest = repository.forge.publish("puppetlabs-stdlib", "9.6.0", &stdlib);
    repository.forge.publish("puppetlabs-concat", "9.0.0", &[("metadata.json", "{}")]);
    let commit = repository.site.commit("apache", &[("manifests/init.pp", "class apache {}\n")]);
    git(&repository.site.path("src/apache"), &["tag", "v5.5.0"]);
    (repository, digest, commit)
}

#[test]
fn modules_are_imported_pinned_and_built() {
    let (repository, digest, commit) = repository();
    let error = repository.build().unwrap_err().to_string();
    assert_eq!(error, "Puppetfile names modules that are not in the release: stdlib, concat, apache");

    let (plan, imported) = repository.import(&PinUpdate::None).unwrap();

    assert_eq!(plan.local, ["profile"]);
    let names: Vec<(&str, &str)> =
        imported.iter().map(|repo| (repo.name.as_str(), repo.pin.reference.as_str())).collect();
    assert_eq!(names, [("apache", "v5.5.0"), ("concat", "9.0.0"), ("stdlib", "9.6.0")]);
    let lock = repository.site.lock();
    assert!(lock.contains(&digest) && lock.contains(&commit), "{lock}");
    let assembled = repository.build().unwrap();
    for path in ["modules/stdlib/lib/x.rb", "modules/concat/metadata.json", "modules/apache/manifests/init.pp"] {
        assert!(assembled.tree.file(path).is_some(), "{path}: {:?}", assembled.tree.paths());
    }
    let first = pack(&assembled.tree, io::sink()).unwrap();
    fs::remove_dir_all(repository.site.path("cache")).unwrap();
    assert_eq!(pack(&repository.build().unwrap().tree, io::sink()).unwrap(), first, "also without the cache");
    drop(assembled);
    repository.site.assert_no_partial_files();
}

#[test]
fn second_import_keeps_versions_until_update() {
    let (repository, ..) = repository();
    repository.import(&PinUpdate::None).unwrap();
    let (repos, lock) = (repository.repos(), repository.site.lock());
    repository.forge.publish("puppetlabs-concat", "9.1.0", &[("metadata.json", "{}")]);
    repository.import(&PinUpdate::None).unwrap();
    assert_eq!((repository.repos(), repository.site.lock()), (repos, lock));
    repository.import(&PinUpdate::All).unwrap();
    assert!(repository.repos().contains("9.1.0"), "{}", repository.repos());

    repository.write_puppetfile("forge 'FORGE'\nmod 'puppetlabs/stdlib', '9.6.0'\n");
    let (plan, _) = repository.import(&PinUpdate::None).unwrap();
    assert_eq!(plan.removed, ["apache", "concat"]);
    assert!(!repository.repos().contains("apache"), "{}", repository.repos());
}

#[test]
fn repositories_of_a_written_file_are_kept() {
    let (repository, ..) = repository();
    repository.site.commit("own", &[("x", "1")]);
    repository.site.write_repos("defaults: {ref: main}\nrepos:\n  own: {source: SRC/own}\n");
    let (plan, imported) = repository.import(&PinUpdate::None).unwrap();
    assert_eq!((plan.kept, imported.len()), (vec!["own".to_owned()], 4));
    assert!(repository.build().is_ok());
}

#[test]
fn changed_puppetfile_needs_another_import() {
    let (repository, ..) = repository();
    repository.import(&PinUpdate::None).unwrap();
    repository.write_puppetfile(&PUPPETFILE.replace("9.6.0", "9.7.0"));
    let error = repository.build().unwrap_err().to_string();
    assert_eq!(
        error,
        "Puppetfile:2: stdlib is forge:puppetlabs/stdlib 9.7.0 in \"modules/stdlib\", and repos.yaml has \
         forge:puppetlabs/stdlib 9.6.0 in \"modules/stdlib\""
    );
}

/// All modules that are not there are named, and no file is written.
#[test]
fn missing_modules_are_named() {
    let (repository, ..) = repository();
    repository.write_puppetfile(&format!(
        "{}mod 'puppet/nothing', '1.0.0'\nmod 'gone', git: 'SRC/gone', ref: 'main'\n",
        PUPPETFILE.replace("9.6.0", "9.9.9")
    ));
    let error = repository.import(&PinUpdate::None).unwrap_err();
    let messages = messages(&error);
    for (message, expected) in messages.iter().zip([
        "gone (main): ",
        "has no version 1.0.0 of puppet/nothing",
        "has no version 9.9.9 of puppetlabs/stdlib",
    ]) {
        assert!(message.contains(expected), "{expected:?} is not in: {message}");
    }
    assert_eq!((messages.len(), repository.repos(), repository.site.lock()), (3, String::new(), String::new()));
    repository.write_puppetfile("forge 'FORGE'\nmod 'puppet/nothing'\n");
    let error = repository.import(&PinUpdate::None).unwrap_err().to_string();
    assert!(error.contains("the newest version of puppet/nothing cannot be looked up: http://127.0.0.1:"), "{error}");
    assert!(error.ends_with("has no module puppet/nothing"), "{error}");
}

#[test]
fn changed_and_damaged_archives_are_refused() {
    let (repository, pinned, _) = repository();
    repository.import(&PinUpdate::None).unwrap();
    let found = repository.forge.publish("puppetlabs-stdlib", "9.6.0", &[("metadata.json", "other")]);
    fs::remove_dir_all(repository.site.path("cache")).unwrap();
    let message = messages(&repository.build().unwrap_err()).remove(0);
    assert!(message.contains("has changed") && message.contains(&pinned) && message.contains(&found), "{message}");

    let file = "/v3/files/puppetlabs-stdlib-9.6.0.tar.gz".to_owned();
    repository.forge.documents.lock().unwrap().insert(file, b"cut off".to_vec());
    let message = messages(&repository.build().unwrap_err()).remove(0);
    assert!(message.contains("and the Forge says") && message.contains(&found), "{message}");
}

#[test]
fn archive_that_leaves_its_directory_is_refused() {
    let repository = ControlRepository::new("forge 'FORGE'\nmod 'x/evil', '1.0.0'\n");
    repository.forge.publish("x-evil", "1.0.0", &[("placeholder-placeholder", "x")]);
    let file = "/v3/files/x-evil-1.0.0.tar.gz".to_owned();
    let mut header = tar::Header::new_gnu();
    let name = b"x-evil-1.0.0/../../evil";
    header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name);
    header.set_mode(0o644);
    header.set_size(0);
    header.set_cksum();
    let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    tar.append(&header, io::empty()).unwrap();
    let archive = tar.into_inner().unwrap().finish().unwrap();
    let release = format!(r#"{{"file_uri":"{file}"}}"#);
    repository
        .forge
        .documents
        .lock()
        .unwrap()
        .extend([(file, archive), ("/v3/releases/x-evil-1.0.0".to_owned(), release.into_bytes())]);
    let message = messages(&repository.import(&PinUpdate::None).unwrap_err()).remove(0);
    assert!(message.ends_with("its archive cannot be unpacked: \"../../evil\" leads out of the release"), "{message}");
    repository.site.assert_no_partial_files();
}

#[test]
fn moved_tag_is_refused_by_the_import() {
    let (repository, _, old) = repository();
    repository.import(&PinUpdate::None).unwrap();
    let new = repository.site.commit("apache", &[("manifests/init.pp", "class apache { }\n")]);
    git(&repository.site.path("src/apache"), &["tag", "--force", "v5.5.0"]);
    let message = messages(&repository.import(&PinUpdate::None).unwrap_err()).remove(0);
    assert!(message.contains("has moved") && message.contains(&old) && message.contains(&new), "{message}");
}

/// A module inside another one, and the control repository as its own module.
#[test]
fn loops_are_refused() {
    let (repository, ..) = repository();
    for (line, expected) in [
        (
            "mod 'inner', git: 'SRC/apache', install_path: 'modules/apache/files'",
            "inner: its dest \"modules/apache/files/inner\" is in use: apache goes to \"modules/apache\"",
        ),
        ("mod 'control', git: '.', ref: 'main'", "control is fetched from the release itself (.)"),
        ("mod 'y/apache', '1.0.0'", "Puppetfile:6: apache goes to \"modules/apache\", as the module of line 4"),
    ] {
        repository.write_puppetfile(&format!("{PUPPETFILE}{line}\n"));
        let error = repository.import(&PinUpdate::None).unwrap_err().to_string();
        assert!(error.contains(expected), "{expected:?} is not in: {error}");
        assert_eq!(repository.repos(), "");
    }
}
