//! Expands paths: `~` and `$HOME` stand for the home folder, `$NAME` for an environment variable.

use std::path::PathBuf;

use super::root::Config;
use crate::problems::Problem;
use crate::sections::AccessLog;
use crate::values::{DatabaseUrl, ParseValueError};

/// Expands a path. `variable` looks up environment variables.
///
/// # Errors
/// If a variable is not set, or the text names another account's home folder.
pub fn expanded(
    text: &str,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<PathBuf, ParseValueError> {
    let is_of_another = text.starts_with('~') && text.len() > 1 && !text.starts_with("~/");
    if is_of_another {
        return Err(ParseValueError(format!(
            "`{text}` names the home folder of another account; write the complete path, or ./{text} for a folder of that name"
        )));
    }
    let home = variable("HOME").filter(|home| !home.is_empty());
    if text.starts_with('~') && home.is_none() {
        return Err(ParseValueError(format!(
            "`{text}` begins with the home folder, and the variable HOME is not set; write the complete path"
        )));
    }
    let filled = shellexpand::full_with_context(
        text,
        || home.as_deref(),
        |name| variable(name).map(Some).ok_or(()),
    );
    let filled = filled.map_err(|missing| {
        ParseValueError(format!(
            "`{text}`: the variable {} is not set; set it, or write the complete path (`$$` is a `$`)",
            missing.var_name
        ))
    })?;
    Ok(PathBuf::from(filled.as_ref()))
}

/// Like `expanded`, with the environment of this process.
pub fn expanded_here(text: &str) -> Result<PathBuf, ParseValueError> {
    expanded(text, |name| std::env::var(name).ok())
}

impl Config {
    /// Expands every path of the configuration.
    pub(super) fn expand_paths(
        &mut self,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Vec<Problem> {
        let mut problems = Vec::new();
        for (key, path) in self.paths() {
            // Paths that are not valid text are left unchanged.
            let Some(text) = path.to_str().filter(|text| text.contains(['~', '$'])) else {
                continue;
            };
            match expanded(text, &variable) {
                Ok(whole) => *path = whole,
                Err(error) => problems.push(Problem::new(key, format!("is {error}"))),
            }
        }
        problems
    }

    /// Every path of the configuration with its key.
    fn paths(&mut self) -> Vec<(String, &mut PathBuf)> {
        let Config {
            server,
            state,
            inventory,
            catalog,
            sources,
            auth,
            limits,
            cluster,
            node,
            telemetry,
            ..
        } = self;
        let mut found = vec![
            ("state.dir", &mut state.dir),
            ("catalog.models_dir", &mut catalog.models_dir),
            ("catalog.model_reference", &mut catalog.model_reference),
        ];
        if let Some(DatabaseUrl::Sqlite(path)) = &mut state.database_url {
            found.push(("state.database_url", path));
        }
        if let Some(tls) = &mut server.tls {
            found.push(("server.tls.cert", &mut tls.cert));
            found.push(("server.tls.key", &mut tls.key));
        }
        if let AccessLog::File(path) = &mut server.access_log {
            found.push(("server.access_log", path));
        }
        let optional = [
            ("inventory.cuda_program", &mut inventory.cuda_program),
            ("sources.cache_dir", &mut sources.cache_dir),
            ("auth.first_admin_key_file", &mut auth.first_admin_key_file),
            ("auth.admin_key_file", &mut auth.admin_key_file),
            ("cluster.token_file", &mut cluster.token_file),
            (
                "cluster.kubernetes.token_file",
                &mut cluster.kubernetes.token_file,
            ),
            (
                "cluster.kubernetes.ca_file",
                &mut cluster.kubernetes.ca_file,
            ),
            ("cluster.pbs.bin_dir", &mut cluster.pbs.bin_dir),
            ("cluster.pbs.log_dir", &mut cluster.pbs.log_dir),
            ("cluster.ray.token_file", &mut cluster.ray.token_file),
            ("cluster.slurm.bin_dir", &mut cluster.slurm.bin_dir),
            ("cluster.slurm.log_dir", &mut cluster.slurm.log_dir),
            ("node.join_token_file", &mut node.join_token_file),
            ("telemetry.headers_file", &mut telemetry.headers_file),
        ];
        found.extend(
            optional
                .into_iter()
                .filter_map(|(key, path)| Some((key, path.as_mut()?))),
        );
        if let Some(redis) = &mut limits.redis {
            found.extend(
                redis
                    .password_file
                    .as_mut()
                    .map(|path| ("limits.redis.password_file", path)),
            );
        }
        if let Some(oidc) = &mut auth.oidc {
            found.extend(
                oidc.ca_file
                    .as_mut()
                    .map(|path| ("auth.oidc.ca_file", path)),
            );
            let browser = oidc.browser.as_mut();
            let secret = browser.and_then(|browser| browser.client_secret_file.as_mut());
            found.extend(secret.map(|path| ("auth.oidc.browser.client_secret_file", path)));
        }
        let roots = sources.extra_roots.iter_mut().enumerate();
        let roots = roots.map(|(nth, path)| (format!("sources.extra_roots[{nth}]"), path));
        let found = found.into_iter().map(|(key, path)| (key.to_owned(), path));
        found.chain(roots).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lab(name: &str) -> Option<String> {
        match name {
            "HOME" => Some("/home/lab".to_owned()),
            "DATA" => Some("/srv/data".to_owned()),
            _ => None,
        }
    }

    #[test]
    fn the_home_folder_and_variables_are_expanded() {
        for (text, path) in [
            ("~", "/home/lab"),
            ("~/models", "/home/lab/models"),
            ("$HOME/models", "/home/lab/models"),
            ("${DATA}/m", "/srv/data/m"),
            ("models/~x", "models/~x"),
            ("/srv/m", "/srv/m"),
            ("$$DATA", "$DATA"),
        ] {
            assert_eq!(expanded(text, lab).expect(text), PathBuf::from(path));
        }
        for (text, part) in [
            ("~bob/models", "another account"),
            ("$SCRATCH/m", "SCRATCH is not set"),
        ] {
            let error = expanded(text, lab).expect_err(text).to_string();
            assert!(error.contains(part), "{error}");
        }
        let homeless = expanded("~/m", |_| None).expect_err("no home").to_string();
        assert!(homeless.contains("HOME is not set"), "{homeless}");
    }

    /// Every `PathBuf` declared in the sections, from this crate's sources.
    #[test]
    fn every_path_of_the_configuration_is_expanded() {
        let text = "
server: {access_log: ~/access.log, tls: {cert: ~/cert, key: ~/key}}
state: {dir: ~/dir, database_url: 'sqlite://~/pool.db'}
inventory: {cuda_program: ~/cuda_program}
catalog: {models_dir: ~/models_dir, model_reference: ~/model_reference}
sources: {cache_dir: ~/cache_dir, extra_roots: [~/extra_roots]}
auth:
  first_admin_key_file: ~/first_admin_key_file
  admin_key_file: ~/admin_key_file
  oidc:
    issuer: https://sso.example.org
    audience: pool
    ca_file: ~/ca_file
    browser: {client_id: pool, client_secret_file: ~/client_secret_file}
limits: {redis: {url: 'redis://127.0.0.1', password_file: ~/password_file}}
cluster:
  token_file: ~/token_file
  kubernetes: {token_file: ~/token_file, ca_file: ~/ca_file}
  pbs: {bin_dir: ~/bin_dir, log_dir: ~/log_dir}
  ray: {token_file: ~/token_file}
  slurm: {bin_dir: ~/bin_dir, log_dir: ~/log_dir}
node: {join_token_file: ~/join_token_file}
telemetry: {headers_file: ~/headers_file}
";
        let mut config: Config = reading::yaml(text).expect("a configuration");
        assert_eq!(config.expand_paths(lab), []);
        let effective = serde_json::to_string(&config).expect("JSON");
        assert!(!effective.contains('~'), "{effective}");
        // `Config::file` is not a key of the file.
        let declared = declared_paths();
        assert!(declared.len() > 15, "{declared:?}");
        for name in declared.iter().filter(|name| *name != "file") {
            assert!(
                effective.contains(&format!("/home/lab/{name}")),
                "`{name}` is a path that this test, and perhaps `Config::paths`, does not know"
            );
        }
    }

    fn declared_paths() -> Vec<String> {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        let folders = ["cluster", "loading", "sections"].map(|folder| root.join(folder));
        let files = folders
            .iter()
            .flat_map(|folder| std::fs::read_dir(folder).expect("a folder"));
        let files = files.map(|file| file.expect("an entry").path());
        let texts = files
            .filter(|file| file.extension().is_some_and(|ending| ending == "rs"))
            .map(|file| std::fs::read_to_string(file).expect("text"));
        let names = |text: String| {
            let lines = text.lines().map(str::trim).map(str::to_owned);
            let fields = lines.filter_map(|line| {
                let (name, of_type) = line.strip_prefix("pub ")?.split_once(": ")?;
                let is_path = of_type.ends_with("PathBuf,") || of_type.ends_with("PathBuf>,");
                is_path.then(|| name.to_owned())
            });
            fields.collect::<Vec<_>>()
        };
        texts.flat_map(names).collect()
    }
}
