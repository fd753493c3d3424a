# Writes OUTPUT, a header with the FILES of FOLDER as arrays: `cmake -DOUTPUT=... -DFOLDER=... -DSERVED=a,b -DINLINED=c
# -P embed.cmake`. SERVED ones are for browsers; INLINED ones only for reports.
cmake_minimum_required(VERSION 3.25)
string(REPLACE "," ";" SERVED "${SERVED}")
string(REPLACE "," ";" INLINED "${INLINED}")
set(arrays "")
set(table "")
set(number 0)
foreach(name ${SERVED} ${INLINED})
  file(READ ${FOLDER}/${name} hex HEX)
  file(SHA256 ${FOLDER}/${name} hash)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
  string(APPEND arrays "inline constexpr unsigned char kFile${number}[] = {${bytes}};\n")
  set(is_served false)
  if(name IN_LIST SERVED)
    set(is_served true)
  endif()
  get_filename_component(short ${name} NAME)
  string(APPEND table "    EmbeddedFile{\"${short}\", \"${hash}\", kFile${number}, sizeof kFile${number}, ${is_served}},\n")
  math(EXPR number "${number} + 1")
endforeach()
file(WRITE ${OUTPUT} "// SPDX-License-Identifier: Apache-2.0
// Made by runtime/status/embed.cmake.
#pragma once

#include <array>
#include <cstddef>

namespace pushpull {

struct EmbeddedFile {
  const char* name = nullptr;
  const char* hash = nullptr;  // SHA-256
  const unsigned char* data = nullptr;
  size_t size = 0;
  bool is_served = false;
};

${arrays}
inline constexpr std::array<EmbeddedFile, ${number}> kEmbeddedFiles = {
${table}};

}  // namespace pushpull
")
