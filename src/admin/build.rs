//! Compresses the dashboard's files and embeds them into the program as a table. Needs nothing but cargo.

use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::hash::{DefaultHasher, Hasher};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=dashboard");
    let root = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR")?).join("dashboard");
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    let mut files = Vec::new();
    walk(&root, &root, &mut files)?;
    files.sort();

    // The URLs contain a hash over all files, so browsers may cache them forever.
    let mut hasher = DefaultHasher::new();
    for name in &files {
        hasher.write(name.as_bytes());
        hasher.write(&fs::read(root.join(name))?);
    }
    let version = format!("{:016x}", hasher.finish());

    let page = fs::read_to_string(root.join("index.html"))?;
    let assets = format!("dashboard/{version}");
    let mut preloads = String::new();
    for name in files.iter().filter(|name| name.ends_with(".js")) {
        writeln!(
            preloads,
            "<link rel=\"modulepreload\" href=\"{assets}/{name}\">"
        )?;
    }
    let page = page
        .replace("{{preloads}}", &preloads)
        .replace("{{assets}}", &assets);

    let mut table = format!("const VERSION: &str = {version:?};\n");
    table += "const PAGE: File = ";
    table += &entry("index.html", page.as_bytes(), &out)?;
    table += ";\nstatic FILES: &[File] = &[\n";
    for name in files.iter().filter(|name| *name != "index.html") {
        table += &entry(name, &fs::read(root.join(name))?, &out)?;
        table += ",\n";
    }
    table += "];\n";
    fs::write(out.join("dashboard.rs"), table)?;
    Ok(())
}

/// Collects the files that the page uses, without licences and notes.
fn walk(root: &Path, folder: &Path, found: &mut Vec<String>) -> Result<(), Box<dyn Error>> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            walk(root, &path, found)?;
            continue;
        }
        let kind = path.extension().and_then(|extension| extension.to_str());
        if matches!(kind, Some("html" | "js" | "css" | "svg")) {
            let name = path
                .strip_prefix(root)?
                .to_string_lossy()
                .replace('\\', "/");
            found.push(name);
        }
    }
    Ok(())
}

/// Writes the plain and compressed forms of a file, and returns its table entry.
fn entry(name: &str, bytes: &[u8], out: &Path) -> Result<String, Box<dyn Error>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes)?;
    let plain = out.join("dashboard").join(name);
    let packed = out.join("dashboard").join(format!("{name}.gz"));
    fs::create_dir_all(plain.parent().ok_or("a file without a folder")?)?;
    fs::write(&plain, bytes)?;
    fs::write(&packed, encoder.finish()?)?;
    Ok(format!(
        "File {{ name: {name:?}, plain: include_bytes!({plain:?}), gzip: include_bytes!({packed:?}) }}"
    ))
}
