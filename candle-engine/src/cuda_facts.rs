//! The CUDA environment of this program: the version it was built for, the driver's version, and the number of GPUs. Builds without
//! CUDA report an error.

/// CUDA versions and GPU count. Versions are encoded as in CUDA: 13000 is 13.0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CudaFacts {
    pub built_for: u32,
    /// The latest CUDA version the driver supports.
    pub driver: u32,
    pub gpus: u32,
}

/// Opens the driver and reads its version, without allocating GPU memory.
///
/// # Errors
/// The driver's own error, such as `CUDA_ERROR_NO_DEVICE`.
#[cfg(feature = "cuda")]
pub fn cuda_facts() -> Result<CudaFacts, String> {
    use candle_core::cuda_backend::cudarc::driver::{result, sys};
    let failed = |error: result::DriverError| format!("{error:?}");
    result::init().map_err(failed)?;
    let mut driver: std::ffi::c_int = 0;
    #[expect(unsafe_code, reason = "the driver's version has no safe form")]
    // SAFETY: the call writes one number through the pointer.
    let status = unsafe { sys::cuDriverGetVersion(&mut driver) };
    status.result().map_err(failed)?;
    let gpus = result::device::get_count().map_err(failed)?;
    Ok(CudaFacts {
        built_for: sys::CUDA_VERSION,
        driver: u32::try_from(driver).unwrap_or(0),
        gpus: u32::try_from(gpus).unwrap_or(0),
    })
}

/// # Errors
/// Always, because this program was built without CUDA.
#[cfg(not(feature = "cuda"))]
pub fn cuda_facts() -> Result<CudaFacts, String> {
    Err(WITHOUT_CUDA.to_owned())
}

#[cfg(not(feature = "cuda"))]
const WITHOUT_CUDA: &str = "this program was built without CUDA";

#[cfg(all(test, not(feature = "cuda")))]
mod tests {
    #[test]
    fn a_build_without_cuda_reports_the_missing_support() {
        let error = super::cuda_facts().expect_err("there is no CUDA in this build");
        assert_eq!(error, super::WITHOUT_CUDA);
    }
}
