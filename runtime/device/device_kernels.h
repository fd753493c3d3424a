// SPDX-License-Identifier: Apache-2.0
//
// A server's computations on arrays in the memory of a GPU: what runtime/tensor/reduce.h,
// half_float.h and runtime/optim do on the CPU, with the same bits, except for a NaN's sign and
// payload. Calls are put on a stream and return at once; arrays of one call have equal lengths
// (checked), do not overlap unless stated, and must stay until the work is done.
//
// Calls are fast if arrays begin at a multiple of 16 bytes, or of 8 for halves. Errors are those of
// DriverStatus, and may come from earlier work. Nothing is allocated, nothing blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pushpull/tensor_spec.h"

#include "runtime/device/device.h"
#include "runtime/device/device_buffer.h"
#include "runtime/device/device_stream.h"
#include "runtime/optim/optimizer.h"

namespace pushpull {

// The arrays of ApplyOptimizer, runtime/optim/optimizer.h.
struct DeviceUpdate {
  DeviceSpan<const float> gradient;
  DeviceSpan<const float> value_in;
  DeviceSpan<float> value_out;  // value_in, or disjoint from it
  DeviceSpan<float> state;      // [StateFloatsPerValue, n]
};

// Holds the loaded kernels of one device. Thread-safe, unlike streams.
class DeviceKernels {
 public:
  // `image`: as from KernelImage(); the driver takes the part for its GPU. Blocks while it is
  // copied to the GPU, and for up to seconds if the driver must compile it.
  //
  // kFailedPrecondition: the image is empty, because this is a build without CUDA, or has nothing
  // for this GPU and driver; the text says what to do.
  static absl::StatusOr<std::unique_ptr<const DeviceKernels>> Load(
      std::shared_ptr<const Device> device, std::span<const std::byte> image);

  DeviceKernels(const DeviceKernels&) = delete;
  DeviceKernels& operator=(const DeviceKernels&) = delete;
  ~DeviceKernels();

  absl::Status Copy(DeviceStream& stream, DeviceSpan<float> to, DeviceSpan<const float> from) const;

  // accumulator += scale x. A sum that is not finite sets the number at `not_finite` to 1; an empty
  // span: not reported.
  absl::Status AddScaled(DeviceStream& stream,
                         DeviceSpan<float> accumulator,
                         DeviceSpan<const float> x,
                         float scale,
                         DeviceSpan<uint32_t> not_finite) const;
  absl::Status Minimum(DeviceStream& stream,
                       DeviceSpan<float> accumulator,
                       DeviceSpan<const float> x) const;
  absl::Status Maximum(DeviceStream& stream,
                       DeviceSpan<float> accumulator,
                       DeviceSpan<const float> x) const;
  // x *= scale
  absl::Status Scale(DeviceStream& stream, DeviceSpan<float> x, float scale) const;
  // An element that is NaN or infinite sets the number at `not_finite` to 1.
  absl::Status CheckFinite(DeviceStream& stream,
                           DeviceSpan<const float> x,
                           DeviceSpan<uint32_t> not_finite) const;

  // Adds the number of finite values that became infinite to the number at `overflows`.
  absl::Status EncodeFloat16(DeviceStream& stream,
                             DeviceSpan<const float> values,
                             DeviceSpan<uint16_t> halves,
                             DeviceSpan<unsigned long long> overflows) const;
  absl::Status EncodeBFloat16(DeviceStream& stream,
                              DeviceSpan<const float> values,
                              DeviceSpan<uint16_t> halves,
                              DeviceSpan<unsigned long long> overflows) const;
  absl::Status DecodeFloat16(DeviceStream& stream,
                             DeviceSpan<const uint16_t> halves,
                             DeviceSpan<float> values) const;
  absl::Status DecodeBFloat16(DeviceStream& stream,
                              DeviceSpan<const uint16_t> halves,
                              DeviceSpan<float> values) const;

  // One update, like ApplyOptimizer in runtime/optim/optimizer.h.
  absl::Status ApplyOptimizer(DeviceStream& stream,
                              const OptimizerSpec& spec,
                              const StepInput& input,
                              const DeviceUpdate& update) const;

 private:
  struct Functions;

  DeviceKernels(std::shared_ptr<const Device> device,
                CuModule module,
                std::unique_ptr<Functions> functions);

  template <typename Args>
  absl::Status Launch(DeviceStream& stream, Args args) const;
  absl::Status ApplySgd(DeviceStream& stream,
                        const OptimizerSpec& spec,
                        const StepInput& input,
                        const DeviceUpdate& update) const;

  const std::shared_ptr<const Device> device_;
  const CuModule module_;
  const std::unique_ptr<const Functions> functions_;
};

}  // namespace pushpull
