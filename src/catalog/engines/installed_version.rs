//! Reads the version of an installed engine from the `*.dist-info` folders of its Python packages, without starting it, and
//! compares it with the version whose flags the pool knows. Blocking.

use std::cmp::Ordering;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use super::program_search::find_program;
use crate::engines::{PythonPackage, ServerRecipe};

/// Bytes of a program read to find its interpreter.
const HEAD_BYTES_MAX: u64 = 4 << 10;

impl ServerRecipe {
    /// A notice that the installed engine's version differs from the one whose flags the pool knows, or that its installation is
    /// incomplete, with advice. `None` if the version matches or is unknown: an engine that is not a Python package, runs in a
    /// container or behind a custom script, or was built without a version.
    pub fn version_notice(&self) -> Option<String> {
        let package = self.engine.package.filter(|_| self.prefix.is_empty())?;
        let own = self.engine.program.first().copied();
        let program = self.program.as_deref().or(own)?;
        let program = find_program(program, self.working_dir.as_deref(), &self.env)?;
        let mut places = packages_beside(&program).into_iter();
        let installed = places.find_map(|folder| Installed::in_folder(&folder, &package))?;
        installed.notice(&package)
    }
}

/// The state of a package in one environment.
#[derive(Debug, PartialEq, Eq)]
enum Installed {
    Version {
        version: String,
        /// The folder of packages.
        folder: PathBuf,
        /// The package's name for `pip`.
        pip: String,
    },
    /// The package's folder contains no version.
    Incomplete { metadata: PathBuf, pip: String },
    /// The package exists only under another name.
    Nameless {
        folder: PathBuf,
        /// The folder under the other name.
        other: String,
        /// The version with the build suffix, as the engine looks it up.
        version: String,
    },
}

impl Installed {
    fn in_folder(folder: &Path, package: &PythonPackage) -> Option<Installed> {
        // Sorted by the order of the names, the engine's own first.
        let mut found: Vec<(usize, String)> = fs::read_dir(folder)
            .ok()?
            .flatten()
            .filter_map(|entry| {
                let name = entry.file_name().into_string().ok()?;
                let (of, _) = name.strip_suffix(".dist-info")?.split_once('-')?;
                let nth = package.names.iter().position(|known| *known == of)?;
                Some((nth, name))
            })
            .collect();
        found.sort();
        let (first, last) = (found.first()?, found.last()?);
        let pip = package.names[last.0].replace('_', "-");
        let metadata = |(_, name): &(usize, String)| folder.join(name).join("METADATA");
        if first.0 != 0 {
            let (_, version) = first.1.trim_end_matches(".dist-info").split_once('-')?;
            let build = package.names[first.0].trim_start_matches(package.names[0]);
            let version = if version.contains('+') {
                version.to_owned()
            } else {
                format!("{version}+{}", build.trim_start_matches('_'))
            };
            return Some(Installed::Nameless {
                folder: folder.to_owned(),
                other: first.1.clone(),
                version,
            });
        }
        // An interrupted update may have left the folder of an earlier version.
        let own = found.iter().filter(|(nth, _)| *nth == 0);
        let versions = own.filter_map(|folder| version_in(&metadata(folder)));
        Some(match versions.max_by_key(|version| numbers(version)) {
            Some(version) => Installed::Version {
                version,
                folder: folder.to_owned(),
                pip,
            },
            None => Installed::Incomplete {
                metadata: metadata(first),
                pip,
            },
        })
    }

    fn notice(self, package: &PythonPackage) -> Option<String> {
        let name = package.title;
        let (major, minor) = package.flags_of;
        let known = format!("{major}.{minor}");
        Some(match self {
            Installed::Version {
                version,
                folder,
                pip,
            } => {
                let of = numbers(&version)?;
                // A build from source without git history has an artificial version.
                if version.contains(".dev") || matches!(of, (0, 0 | 1)) {
                    return None;
                }
                let installed = format!("{name} {version} is installed in {}", folder.display());
                match of.cmp(&package.flags_of) {
                    Ordering::Equal => return None,
                    Ordering::Less => format!(
                        "{installed}, and the pool knows the flags of {name} {known}: the pool accepts keys of engine_config.engine_kwargs that only later versions support, and {name} refuses them at start; remove such keys, or update {name} (pip install -U {pip})"
                    ),
                    Ordering::Greater => format!(
                        "{installed}, and the pool knows the flags of {name} {known}: {name} may refuse flags that have been removed since, and the pool refuses newer flags; if a load fails with an unknown argument, remove its key from engine_config.engine_kwargs, or install {name} {known} (pip install '{pip}=={known}.*')"
                    ),
                }
            }
            Installed::Incomplete { metadata, pip } => format!(
                "{} has no line with a version: {name} is installed incompletely and may not start; install it again (pip install --force-reinstall {pip})",
                metadata.display()
            ),
            Installed::Nameless {
                folder,
                other,
                version,
            } => {
                let own = package.names[0];
                format!(
                    "{} has {other} and no {own}-*.dist-info, in which {name} looks up its own version, so loads fail; create the folder {own}-{version}.dist-info with a file METADATA of the lines `Metadata-Version: 2.1`, `Name: {own}` and `Version: {version}`, or install {name} again",
                    folder.display()
                )
            }
        })
    }
}

/// Package folders of the environment that contains the program, the latest Python first. Links are resolved, since a link may be
/// in another environment than the program. Empty if the program runs under another Python or none: a script in `/usr/local/bin`
/// may start the engine of any environment.
fn packages_beside(program: &Path) -> Vec<PathBuf> {
    let itself = fs::canonicalize(program).ok();
    let programs = itself.iter().map(PathBuf::as_path).chain([program]);
    let python = python_folder(program);
    let linked = python.as_ref().and_then(|path| fs::canonicalize(path).ok());
    let folders: Vec<PathBuf> = python.into_iter().chain(linked).collect();
    let has_python = |root: &&Path| folders.iter().any(|folder| folder.parent() == Some(*root));
    let roots = programs
        .filter_map(|program| program.parent()?.parent())
        .filter(has_python);
    let mut found = Vec::new();
    for root in roots {
        let mut pythons: Vec<(u32, PathBuf)> = ["lib", "lib64"]
            .iter()
            .filter_map(|lib| fs::read_dir(root.join(lib)).ok())
            .flatten()
            .flatten()
            .filter_map(|entry| {
                let name = entry.file_name().into_string().ok()?;
                let minor = name.strip_prefix("python3")?.trim_start_matches('.');
                Some((minor.parse().unwrap_or(0), entry.path()))
            })
            .collect();
        pythons.sort_by_key(|(minor, _)| std::cmp::Reverse(*minor));
        for (_, python) in pythons {
            found.extend(["site-packages", "dist-packages"].map(|name| python.join(name)));
        }
    }
    found
}

/// The folder of the Python that runs this program, from the program's first lines as `pip` writes them.
fn python_folder(program: &Path) -> Option<PathBuf> {
    let mut head = Vec::new();
    let file = File::open(program).ok()?;
    file.take(HEAD_BYTES_MAX).read_to_end(&mut head).ok()?;
    let text = String::from_utf8_lossy(&head);
    let mut lines = text.lines();
    let first = lines.next()?.strip_prefix("#!")?;
    // `pip` writes a path with spaces, or too long for the first line, to the second line.
    let second = lines.next().and_then(|line| line.strip_prefix("'''exec' "));
    let python = match second {
        Some(line) => match line.strip_prefix(['"', '\'']) {
            Some(quoted) => quoted.split(['"', '\'']).next()?,
            None => line.split(' ').next()?,
        },
        None => first.split_whitespace().next()?,
    };
    let python = Path::new(python);
    let is_python = python.file_name()?.to_str()?.starts_with("python");
    python.parent().filter(|_| is_python).map(Path::to_owned)
}

/// The version in the head of a `METADATA` file. A truncated line without a line break is ignored.
fn version_in(metadata: &Path) -> Option<String> {
    let bytes = fs::read(metadata).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let (whole, _) = text.rsplit_once('\n')?;
    let head = whole.split("\n\n").next()?;
    let version = head
        .lines()
        .find_map(|line| line.strip_prefix("Version:"))?;
    let version = version.trim();
    numbers(version).map(|_| version.to_owned())
}

/// The major and minor number: `0.33.0rc1+cpu` gives 0.33.
fn numbers(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split('.');
    let major = parts.next()?.parse().ok()?;
    let minor = parts.next()?;
    let digits = minor.len()
        - minor
            .trim_start_matches(|letter: char| letter.is_ascii_digit())
            .len();
    Some((major, minor[..digits].parse().ok()?))
}

#[cfg(test)]
mod tests;
