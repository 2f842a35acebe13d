//! The shapes of the configuration, by name.

use config::{ClusterSection, ShapeSection};

use super::ClusterError;

pub(super) fn find_shape<'a>(
    section: &'a ClusterSection,
    name: &str,
) -> Result<&'a ShapeSection, ClusterError> {
    let found = section.shapes.iter().find(|shape| shape.name == name);
    found.ok_or_else(|| {
        let known: Vec<&str> = section
            .shapes
            .iter()
            .map(|shape| shape.name.as_str())
            .collect();
        ClusterError::UnknownShape {
            shape: name.chars().take(100).collect(),
            known: known.join(", "),
        }
    })
}
