//! The program and libraries that an engine gets, and the report if there are none.

use super::*;
use crate::health::{LivenessLimits, Watch};
use crate::launch::report::{DeviceAddress, Program};
use pool::{Bytes, DeviceId, ReplicaId};

fn ready() -> CudaProgram {
    CudaProgram::Ready(ReadyCuda {
        executable: "/opt/model-pool-cuda".into(),
        built_for: 13000,
        driver: 13010,
        gpus: 2,
        libraries: Some("/opt/model-pool-cuda-libraries".into()),
        library_path: Some("/opt/model-pool-cuda-libraries:/own".into()),
    })
}

fn program(device: CandleDevice, cuda: CudaProgram) -> CandleProgram {
    let (executable, model_dir) = ("/opt/model-pool".into(), "/models/m".into());
    CandleProgram {
        cuda,
        ..CandleProgram::new(executable, model_dir, device)
    }
}

fn launch(program: &CandleProgram, kind: DeviceKind) -> Launch {
    Launch {
        replica: ReplicaId(1),
        model_name: "lab/m".to_owned(),
        program: Program::Candle(program.clone()),
        devices: vec![DeviceAddress {
            id: DeviceId(0),
            index: 0,
            uuid: None,
            kind,
            variable: None,
            total: Bytes::ZERO,
        }],
        bytes_per_device: Bytes::ZERO,
        runtime_dir: "/run".into(),
        log_dir: "/log".into(),
        member: None,
        watch: Watch {
            activity: Default::default(),
            limits: LivenessLimits::default(),
            model_name: "lab/m".to_owned(),
            metrics: None,
        },
    }
}

type ChosenProgram = Result<(PathBuf, BTreeMap<String, String>), EngineError>;

fn chosen(program: &CandleProgram, kind: DeviceKind) -> ChosenProgram {
    choose(program, &launch(program, kind))
}

#[test]
fn only_engines_on_gpus_get_the_program_with_cuda() {
    let on_cpu = program(CandleDevice::Cpu, ready());
    for kind in [DeviceKind::Host, DeviceKind::Nvidia] {
        let (executable, env) = chosen(&on_cpu, kind).expect("the plain program");
        assert_eq!(executable, Path::new("/opt/model-pool"));
        assert!(env.is_empty());
    }
    let on_gpu = program(CandleDevice::Cuda, ready());
    let (executable, env) = chosen(&on_gpu, DeviceKind::Nvidia).expect("that with CUDA");
    assert_eq!(executable, Path::new("/opt/model-pool-cuda"));
    assert_eq!(env[LIBRARY_PATH], "/opt/model-pool-cuda-libraries:/own");
}

#[test]
fn libraries_from_the_model_file_come_before_the_default_folder() {
    let mut on_gpu = program(CandleDevice::Cuda, ready());
    let own = (LIBRARY_PATH.to_owned(), "/cuda/lib".to_owned());
    on_gpu.env = BTreeMap::from([own]);
    let (_, env) = chosen(&on_gpu, DeviceKind::Nvidia).expect("that with CUDA");
    let expected = "/cuda/lib:/opt/model-pool-cuda-libraries";
    assert_eq!(env[LIBRARY_PATH], expected);
}

#[test]
fn a_library_path_has_no_empty_entries() {
    let folder = Some(Path::new("/l"));
    assert_eq!(with_folder(folder, None).as_deref(), Some("/l"));
    assert_eq!(with_folder(folder, Some("")).as_deref(), Some("/l"));
    assert_eq!(
        with_folder(folder, Some("/a:/b")).as_deref(),
        Some("/l:/a:/b")
    );
    assert_eq!(with_folder(None, Some("/a")), None);
}

#[test]
fn an_absent_or_unusable_cuda_program_is_reported_with_advice() {
    let absent = CudaProgram::Absent {
        executable: "/opt/model-pool-cuda".into(),
    };
    let unusable = CudaProgram::Unusable {
        executable: "/opt/model-pool-cuda".into(),
        trouble: CudaTrouble::new(Failure::DriverTooOld, "the driver is too old"),
    };
    for (cuda, kind, parts) in [
        (
            absent,
            Failure::BinaryMissing,
            ["no /opt/model-pool-cuda", "bash .ci/cuda", CUDA_PROGRAM_KEY],
        ),
        (
            unusable,
            Failure::DriverTooOld,
            ["model lab/m", "cannot be used", "too old"],
        ),
    ] {
        assert!(!cuda.is_ready());
        let on_gpu = program(CandleDevice::Cuda, cuda);
        let error = chosen(&on_gpu, DeviceKind::Nvidia).expect_err("no program");
        let EngineError::CudaProgram { failure, .. } = &error else {
            panic!("{error:?}")
        };
        assert_eq!(*failure, kind);
        let text = error.to_string();
        for part in parts {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}

#[test]
fn a_model_for_gpus_is_not_started_in_host_memory() {
    let on_gpu = program(CandleDevice::Cuda, ready());
    let error = chosen(&on_gpu, DeviceKind::Host).expect_err("no GPU");
    assert!(error.to_string().contains("device: cpu"), "{error}");
}

#[test]
fn a_ready_program_is_described_in_one_line() {
    assert_eq!(
        ready().to_string(),
        "/opt/model-pool-cuda, built for CUDA 13.0; the driver supports CUDA up to 13.1; 2 GPUs; libraries from /opt/model-pool-cuda-libraries"
    );
}
