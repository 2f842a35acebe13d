//! URLs of the requests that a client sends.

use reqwest::Url;

use crate::error::ClientError;

/// The URL of a path below the server's base path. The segments of the path are encoded.
///
/// # Errors
/// `Usage` if the base is not a URL, or for a segment that URLs leave out.
pub(crate) fn url_of(server: &str, path: &str, query: &[(&str, &str)]) -> Result<Url, ClientError> {
    let invalid = |why: &str| ClientError::Usage(format!("{server:?} is not a URL: {why}"));
    if let Some(segment) = path
        .split('/')
        .find(|segment| matches!(*segment, "." | ".."))
    {
        return Err(ClientError::Usage(format!(
            "{path:?} cannot be sent: `{segment}` is not a name"
        )));
    }
    let mut url = Url::parse(server).map_err(|error| invalid(&error.to_string()))?;
    url.path_segments_mut()
        .map_err(|()| invalid("it has no path"))?
        .pop_if_empty()
        .extend(path.split('/'));
    if !query.is_empty() {
        url.query_pairs_mut().extend_pairs(query);
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_safe_in_a_path() {
        let url = |name: &str| url_of("http://h/llm", &format!("v1/models/{name}"), &[]);
        let path = |name: &str| url(name).map(|url| url.path().to_owned()).ok();
        let expected = |name: &str| Some(format!("/llm/v1/models/{name}"));
        assert_eq!(path("org/m:Q4_K_M"), expected("org/m:Q4_K_M"));
        assert_eq!(path("a b?#%ü"), expected("a%20b%3F%23%25%C3%BC"));
        for name in [".", "..", "a/../../admin"] {
            assert_eq!(path(name), None, "{name}");
        }
    }
}
