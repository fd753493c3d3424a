// SPDX-License-Identifier: Apache-2.0
//
// Nothing: the file that is compiled to have the headers precompiled that most files include.
