//! The objects whose number of pods the pool sets: Deployments with one node each, and sets of nodes.

use config::{ClusterSection, PodSetKind};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScaledKind {
    Deployment,
    LeaderWorkerSet,
    StatefulSet,
}

impl ScaledKind {
    /// The API group and the resource, as in paths and rules.
    pub fn resource(self) -> (&'static str, &'static str) {
        match self {
            ScaledKind::Deployment => ("apps", "deployments"),
            ScaledKind::LeaderWorkerSet => ("leaderworkerset.x-k8s.io", "leaderworkersets"),
            ScaledKind::StatefulSet => ("apps", "statefulsets"),
        }
    }

    /// The word in messages.
    pub fn word(self) -> &'static str {
        match self {
            ScaledKind::Deployment => "Deployment",
            ScaledKind::LeaderWorkerSet => "LeaderWorkerSet",
            ScaledKind::StatefulSet => "StatefulSet",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scaled<'a> {
    pub kind: ScaledKind,
    pub shape: &'a str,
    pub name: &'a str,
    pub nodes: u32,
    /// Its place in the configuration, counted from 1.
    pub number: u64,
}

impl Scaled<'_> {
    /// The number to set for its nodes. A LeaderWorkerSet counts groups.
    pub fn replicas(&self) -> u32 {
        match self.kind {
            ScaledKind::Deployment | ScaledKind::LeaderWorkerSet => 1,
            ScaledKind::StatefulSet => self.nodes,
        }
    }

    pub fn is_set(&self) -> bool {
        self.kind != ScaledKind::Deployment
    }

    /// The name of a set's pod.
    pub fn pod(&self, rank: u32) -> String {
        match self.kind {
            ScaledKind::LeaderWorkerSet if rank > 0 => format!("{}-0-{rank}", self.name),
            _ => format!("{}-{rank}", self.name),
        }
    }
}

/// All objects of the configuration.
pub(super) fn all(section: &ClusterSection) -> Vec<Scaled<'_>> {
    let section = &section.kubernetes;
    let single = section.deployments.iter();
    let single = single.flat_map(|(shape, names)| names.iter().map(move |name| (shape, name)));
    let single =
        single.map(|(shape, name)| (ScaledKind::Deployment, shape.as_str(), name.as_str(), 1));
    let sets = section.sets.iter();
    let sets = sets.flat_map(|(shape, sets)| sets.iter().map(move |set| (shape, set)));
    let sets = sets.map(|(shape, set)| {
        let kind = match set.kind {
            PodSetKind::LeaderWorkerSet => ScaledKind::LeaderWorkerSet,
            PodSetKind::StatefulSet => ScaledKind::StatefulSet,
        };
        (kind, shape.as_str(), set.name.as_str(), set.nodes)
    });
    let object = |((kind, shape, name, nodes), number)| Scaled {
        kind,
        shape,
        name,
        nodes,
        number,
    };
    single.chain(sets).zip(1..).map(object).collect()
}
