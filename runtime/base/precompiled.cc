// SPDX-License-Identifier: Apache-2.0
//
// Empty on purpose: compiling this file precompiles the headers that most files include.
