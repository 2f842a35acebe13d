//! Converts a shell-like command line to a CommandEngine's list of arguments, with a template for the port.

use crate::macros::PORT;

/// The template for the port in a model file.
pub const PORT_TEMPLATE: &str = "{{ port }}";

/// Splits a llama-swap command into arguments: lines that begin with `#` are comments, and a line may end with `\`.
pub fn arguments(text: &str) -> Result<Vec<String>, String> {
    let mut lines = String::new();
    for line in text.lines() {
        let trimmed = line.trim();
        if trimmed.starts_with('#') {
            continue;
        }
        lines.push_str(trimmed.strip_suffix('\\').unwrap_or(line));
        lines.push('\n');
    }
    let argv = shlex::split(&lines).ok_or(
        "has an unterminated quotation mark or backslash; it cannot be split into arguments",
    )?;
    if argv.is_empty() {
        Err("is empty".to_owned())
    } else {
        Ok(argv)
    }
}

/// Replaces the port option by the template. Fails if the command has no place for a port.
pub fn with_port(argv: &[String], proxy: Option<&str>) -> Result<Listening, String> {
    let uses_macro = argv.iter().any(|word| word.contains(PORT));
    let (host, port) = match proxy {
        None => (USUAL_HOST.to_owned(), PORT.to_owned()),
        Some(proxy) => host_and_port_of(proxy)?,
    };
    let other_host = Some(host.clone()).filter(|host| host != USUAL_HOST);
    match (uses_macro, port == PORT) {
        (true, true) => Ok(Listening {
            argv: argv.iter().map(|word| word.replace(PORT, PORT_TEMPLATE)).collect(),
            listen: other_host,
        }),
        (true, false) => Err(format!(
            "uses ${{PORT}}, and `proxy` names port {port}; the pool chooses the port, so write ${{PORT}} in both"
        )),
        (false, true) => Err(
            "does not use ${PORT}, so the pool cannot set where the engine listens; add its option for the port, such as --port ${PORT}".to_owned(),
        ),
        (false, false) => {
            let is_port = |word: &String| {
                let rest = word.strip_suffix(port.as_str());
                rest.is_some_and(|rest| rest.is_empty() || rest.ends_with(['=', ':']))
            };
            if !argv.iter().any(is_port) {
                // The port is fixed inside a launcher.
                return Ok(Listening {
                    argv: argv.to_vec(),
                    listen: Some(format!("{host}:{port}")),
                });
            }
            let replaced = argv.iter().map(|word| if is_port(word) { format!("{}{PORT_TEMPLATE}", &word[..word.len() - port.len()]) } else { word.clone() });
            Ok(Listening {
                argv: replaced.collect(),
                listen: other_host,
            })
        }
    }
}

/// The usual listen address of an engine.
const USUAL_HOST: &str = "127.0.0.1";

/// A command and its listen address.
#[derive(Debug, PartialEq, Eq)]
pub struct Listening {
    pub argv: Vec<String>,
    /// `engine_config.listen`; `None` lets the pool choose a port of 127.0.0.1.
    pub listen: Option<String>,
}

/// The loopback address and port from a local URL. Other hosts are refused with a reason.
pub fn host_and_port_of(proxy: &str) -> Result<(String, String), String> {
    let Some(rest) = proxy.strip_prefix("http://") else {
        return Err(format!(
            "is reached at {proxy}; the pool reaches its engines by plain http on 127.0.0.1. An endpoint of another server is a RemoteEngine (docs/guides/remote.md)"
        ));
    };
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    if !matches!(path.trim_end_matches('/'), "" | "v1") {
        return Err(format!(
            "is reached below the path /{path} of its proxy; an engine must serve /v1"
        ));
    }
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.is_empty() => (host, port),
        _ => (authority, "80"),
    };
    let is_here = matches!(host, "localhost" | "[::1]" | "0.0.0.0") || host.starts_with("127.");
    let is_other = host
        .parse::<std::net::Ipv4Addr>()
        .is_ok_and(|at| at.is_loopback());
    if is_here {
        let host = if is_other { host } else { USUAL_HOST };
        Ok((host.to_owned(), port.to_owned()))
    } else {
        Err(format!(
            "is reached at {host}, which is another machine; an endpoint of another server is a RemoteEngine (docs/guides/remote.md)"
        ))
    }
}

/// Escapes an argument to be a template for itself.
pub fn as_template(word: &str) -> String {
    const MARKS: [&str; 3] = ["{{", "{%", "{#"];
    let mut out = String::new();
    let mut rest = word;
    loop {
        let next = MARKS
            .iter()
            .filter_map(|mark| Some((rest.find(mark)?, *mark)));
        let Some((start, mark)) = next.min() else {
            out.push_str(rest);
            return out;
        };
        out.push_str(&rest[..start]);
        out.push_str(&format!("{{{{ \"{mark}\" }}}}"));
        rest = &rest[start + mark.len()..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str) -> Vec<String> {
        arguments(text).expect("words")
    }

    #[test]
    fn comments_quotes_and_line_continuations_are_parsed_like_in_llama_swap() {
        let text = "# a comment\n  llama-server \\\n  --model '/a b/c.gguf'\n  # another\n  --x \"{\\\"a\\\": 1}\" 'it''s'\n";
        assert_eq!(
            split(text),
            [
                "llama-server",
                "--model",
                "/a b/c.gguf",
                "--x",
                "{\"a\": 1}",
                "its"
            ]
        );
        assert!(arguments("llama-server 'open").is_err());
        assert!(arguments(" # nothing\n").is_err());
    }

    #[test]
    fn the_port_is_left_to_the_pool() {
        let port = |text: &str, proxy| {
            let listening = with_port(&split(text), proxy)?;
            let listen = listening.listen.map(|listen| format!(" [{listen}]"));
            Ok::<_, String>(listening.argv.join(" ") + &listen.unwrap_or_default())
        };
        assert_eq!(
            port("x --port ${PORT}", None).as_deref(),
            Ok("x --port {{ port }}")
        );
        assert_eq!(
            port(
                "x --port 8999 --n 18999 --listen 0.0.0.0:8999",
                Some("http://127.0.0.1:8999")
            )
            .as_deref(),
            Ok("x --port {{ port }} --n 18999 --listen 0.0.0.0:{{ port }}")
        );
        for (text, proxy, expected) in [
            (
                "launch.sh",
                "http://127.0.0.1:9030",
                "launch.sh [127.0.0.1:9030]",
            ),
            (
                "x --port ${PORT}",
                "http://127.0.0.1:${PORT}/v1",
                "x --port {{ port }}",
            ),
            (
                "serve.sh ${PORT}",
                "http://127.0.0.2:${PORT}",
                "serve.sh {{ port }} [127.0.0.2]",
            ),
            (
                "x --port 8999",
                "http://127.0.0.3:8999/v1/",
                "x --port {{ port }} [127.0.0.3]",
            ),
        ] {
            assert_eq!(port(text, Some(proxy)).as_deref(), Ok(expected));
        }
        for (text, proxy, why) in [
            ("x", None, "does not use ${PORT}"),
            (
                "x",
                Some("http://localhost:${PORT}"),
                "does not use ${PORT}",
            ),
            (
                "x --port ${PORT}",
                Some("http://localhost:8999"),
                "names port 8999",
            ),
            (
                "x --port ${PORT}",
                Some("http://10.0.0.1:${PORT}"),
                "another machine",
            ),
            (
                "x --port ${PORT}",
                Some("https://localhost:${PORT}"),
                "plain http",
            ),
            (
                "x --port ${PORT}",
                Some("http://localhost:${PORT}/base"),
                "below the path /base",
            ),
        ] {
            let problem = port(text, proxy).expect_err(text);
            assert!(problem.contains(why), "{text}: {problem}");
        }
    }

    #[test]
    fn template_syntax_in_an_argument_is_escaped() {
        assert_eq!(as_template("{\"a\": {}}"), "{\"a\": {}}");
        assert_eq!(as_template("a{{b}}"), "a{{ \"{{\" }}b}}");
        assert_eq!(as_template("{%x%}{#"), "{{ \"{%\" }}x%}{{ \"{#\" }}");
    }
}
