; Setup of FreeToken Desktop for one user: no administrator, chats and models are never touched unless
; asked. Compiled by setup.py, which gives BUILD, OUT, VERSION, VERSION4, SIZE_KB and ROOT; see
; README.md. Keep what needs Windows to be tried here as small as it is.

Unicode true
!ifdef TARGET
  Target ${TARGET}
!endif
!ifdef FINAL
  SetCompressor /SOLID lzma
  SetCompressorDictSize 64
!else
  SetCompressor zlib
!endif
ManifestDPIAware true
ManifestLongPathAware true
RequestExecutionLevel user

!ifdef SIGN
  !uninstfinalize '${SIGN} "%1"' = 0
  !finalize '${SIGN} "%1"' = 0
!endif

!include MUI2.nsh
!include LogicLib.nsh
!include nsDialogs.nsh

!define TITLE "FreeToken Desktop"
!define PROGRAM "freetoken.exe"
!define ENGINE "freetoken-engine.exe"
!define ABOUT "Software\FreeToken Desktop"
!define LISTED "Software\Microsoft\Windows\CurrentVersion\Uninstall\FreeToken Desktop"
!define KINDS "Software\Classes"
!define KIND "FreeToken.Model"
!define DATA "$LOCALAPPDATA\FreeToken Desktop"

Name "${TITLE}"
OutFile "${OUT}"
BrandingText "${TITLE} ${VERSION}"
InstallDir "$LOCALAPPDATA\Programs\FreeToken Desktop"
InstallDirRegKey HKCU "${ABOUT}" "Folder"
AllowRootDirInstall false
SetOverwrite on
CRCCheck on

VIProductVersion "${VERSION4}"
VIFileVersion "${VERSION4}"
VIAddVersionKey "ProductName" "${TITLE}"
VIAddVersionKey "ProductVersion" "${VERSION}"
VIAddVersionKey "FileVersion" "${VERSION}"
VIAddVersionKey "FileDescription" "${TITLE} setup"
VIAddVersionKey "CompanyName" "The FreeToken Desktop authors"
VIAddVersionKey "LegalCopyright" "Apache License 2.0"

!define MUI_ICON "${ROOT}/resources/icons/app/freetoken.ico"
!define MUI_UNICON "${ROOT}/resources/icons/app/freetoken.ico"
!define MUI_WELCOMEFINISHPAGE_BITMAP "${ROOT}/installers/windows/side.bmp"
!define MUI_ABORTWARNING
!define MUI_DIRECTORYPAGE_TEXT_TOP "$(WHERE)"
!define MUI_FINISHPAGE_TEXT "$(DONE)"
!define MUI_FINISHPAGE_RUN "$INSTDIR\${PROGRAM}"
!define MUI_FINISHPAGE_SHOWREADME
!define MUI_FINISHPAGE_SHOWREADME_NOTCHECKED
!define MUI_FINISHPAGE_SHOWREADME_TEXT "$(ON_DESKTOP)"
!define MUI_FINISHPAGE_SHOWREADME_FUNCTION PutOnDesktop
!define MUI_LANGDLL_ALLLANGUAGES

!insertmacro MUI_PAGE_DIRECTORY
!insertmacro MUI_PAGE_INSTFILES
!insertmacro MUI_PAGE_FINISH
UninstPage custom un.AskPage un.AskLeave
!insertmacro MUI_UNPAGE_INSTFILES
!insertmacro MUI_LANGUAGE "English"
!insertmacro MUI_LANGUAGE "SimpChinese"

LangString WHERE ${LANG_ENGLISH} "The program goes into this folder. Chats, settings and models are kept elsewhere:$\r$\n${DATA}"
LangString WHERE ${LANG_SIMPCHINESE} "程序将安装到此文件夹。对话、设置和模型另存于：$\r$\n${DATA}"
LangString DONE ${LANG_ENGLISH} "Installed in:$\r$\n$INSTDIR$\r$\n$\r$\nChats, settings and models are kept in:$\r$\n${DATA}"
LangString DONE ${LANG_SIMPCHINESE} "已安装到：$\r$\n$INSTDIR$\r$\n$\r$\n对话、设置和模型保存在：$\r$\n${DATA}"
LangString ON_DESKTOP ${LANG_ENGLISH} "Put a shortcut on the desktop"
LangString ON_DESKTOP ${LANG_SIMPCHINESE} "在桌面上创建快捷方式"
LangString RUNNING ${LANG_ENGLISH} "FreeToken Desktop is running from this folder. Close it, then try again."
LangString RUNNING ${LANG_SIMPCHINESE} "FreeToken Desktop 正在此文件夹中运行。请先关闭它，然后重试。"
LangString FOREIGN ${LANG_ENGLISH} "This folder belongs to another program. Choose another one."
LangString FOREIGN ${LANG_SIMPCHINESE} "此文件夹属于另一个程序。请选择其他文件夹。"
LangString REMOVE ${LANG_ENGLISH} "Remove the program"
LangString REMOVE ${LANG_SIMPCHINESE} "卸载程序"
LangString KEPT ${LANG_ENGLISH} "Your data stays unless you tick it here. Models in a folder of your own choice always stay."
LangString KEPT ${LANG_SIMPCHINESE} "除非在此勾选，否则您的数据会保留。您自选文件夹中的模型始终保留。"
LangString CHATS ${LANG_ENGLISH} "Delete all chats, settings, profiles and logs too"
LangString CHATS ${LANG_SIMPCHINESE} "同时删除所有对话、设置、测量结果和日志"
LangString MODELS ${LANG_ENGLISH} "Delete all models that the program keeps too"
LangString MODELS ${LANG_SIMPCHINESE} "同时删除程序保存的所有模型"

Var DropChats
Var DropModels
Var ChatsBox
Var ModelsBox

; A running program cannot be opened for writing. /SD: a silent run gives up instead of asking.
!macro NotRunning un name
  Function ${un}Check_${name}
    again:
    ${IfNot} ${FileExists} "$INSTDIR\${${name}}"
      Return
    ${EndIf}
    ClearErrors
    FileOpen $0 "$INSTDIR\${${name}}" a
    ${If} ${Errors}
      MessageBox MB_RETRYCANCEL|MB_ICONEXCLAMATION "$(RUNNING)" /SD IDCANCEL IDRETRY again
      SetErrorLevel 2
      Quit
    ${EndIf}
    FileClose $0
  FunctionEnd
!macroend
!insertmacro NotRunning "" PROGRAM
!insertmacro NotRunning "" ENGINE
!insertmacro NotRunning "un." PROGRAM
!insertmacro NotRunning "un." ENGINE

Function .onInit
  SetShellVarContext current
FunctionEnd

Function .onVerifyInstDir
  ; Only a folder that is ours, or has nothing by our names, may be chosen: those are replaced.
  ${If} ${FileExists} "$INSTDIR\_internal\*.*"
  ${AndIfNot} ${FileExists} "$INSTDIR\${PROGRAM}"
    Abort
  ${EndIf}
FunctionEnd

Function PutOnDesktop
  CreateShortcut "$DESKTOP\${TITLE}.lnk" "$INSTDIR\${PROGRAM}"
FunctionEnd

Section "Program"
  ${If} ${FileExists} "$INSTDIR\_internal\*.*"
  ${AndIfNot} ${FileExists} "$INSTDIR\${PROGRAM}"
    MessageBox MB_OK|MB_ICONSTOP "$(FOREIGN)" /SD IDOK
    SetErrorLevel 3
    Quit
  ${EndIf}
  Call Check_PROGRAM
  Call Check_ENGINE
  RMDir /r "$INSTDIR\_internal" ; files of an older version must not mix with ours
  SetOutPath "$INSTDIR"
  File /r "${BUILD}/*"
  WriteUninstaller "$INSTDIR\uninstall.exe"
  CreateShortcut "$SMPROGRAMS\${TITLE}.lnk" "$INSTDIR\${PROGRAM}"
  WriteRegStr HKCU "${ABOUT}" "Folder" "$INSTDIR"
  WriteRegStr HKCU "${KINDS}\.ftw\OpenWithProgids" "${KIND}" ""
  WriteRegStr HKCU "${KINDS}\${KIND}" "" "FreeToken model"
  WriteRegStr HKCU "${KINDS}\${KIND}\DefaultIcon" "" "$INSTDIR\${PROGRAM},0"
  WriteRegStr HKCU "${KINDS}\${KIND}\shell\open\command" "" '"$INSTDIR\${PROGRAM}" "%1"'
  WriteRegStr HKCU "${LISTED}" "DisplayName" "${TITLE}"
  WriteRegStr HKCU "${LISTED}" "DisplayVersion" "${VERSION}"
  WriteRegStr HKCU "${LISTED}" "DisplayIcon" "$INSTDIR\${PROGRAM}"
  WriteRegStr HKCU "${LISTED}" "Publisher" "The FreeToken Desktop authors"
  WriteRegStr HKCU "${LISTED}" "InstallLocation" "$INSTDIR"
  WriteRegStr HKCU "${LISTED}" "UninstallString" '"$INSTDIR\uninstall.exe"'
  WriteRegStr HKCU "${LISTED}" "QuietUninstallString" '"$INSTDIR\uninstall.exe" /S'
  WriteRegDWORD HKCU "${LISTED}" "EstimatedSize" ${SIZE_KB}
  WriteRegDWORD HKCU "${LISTED}" "NoModify" 1
  WriteRegDWORD HKCU "${LISTED}" "NoRepair" 1
SectionEnd

Function un.onInit
  SetShellVarContext current
  StrCpy $DropChats 0
  StrCpy $DropModels 0
FunctionEnd

Function un.AskPage
  !insertmacro MUI_HEADER_TEXT "$(REMOVE)" "$INSTDIR"
  nsDialogs::Create 1018
  Pop $0
  ${NSD_CreateLabel} 0 0 100% 36u "$(KEPT)$\r$\n$\r$\n${DATA}"
  Pop $0
  ${NSD_CreateCheckbox} 0 44u 100% 12u "$(CHATS)"
  Pop $ChatsBox
  ${NSD_CreateCheckbox} 0 62u 100% 12u "$(MODELS)"
  Pop $ModelsBox
  nsDialogs::Show
FunctionEnd

Function un.AskLeave
  ${NSD_GetState} $ChatsBox $DropChats
  ${NSD_GetState} $ModelsBox $DropModels
FunctionEnd

Section "Uninstall"
  Call un.Check_PROGRAM
  Call un.Check_ENGINE
  ; Ours by name; the folder itself goes only if nothing else is in it.
  RMDir /r "$INSTDIR\_internal"
  Delete "$INSTDIR\${PROGRAM}"
  Delete "$INSTDIR\${ENGINE}"
  Delete "$INSTDIR\uninstall.exe"
  RMDir "$INSTDIR"
  Delete "$SMPROGRAMS\${TITLE}.lnk"
  Delete "$DESKTOP\${TITLE}.lnk"
  DeleteRegKey HKCU "${LISTED}"
  DeleteRegKey HKCU "${ABOUT}"
  DeleteRegKey HKCU "${KINDS}\${KIND}"
  DeleteRegValue HKCU "${KINDS}\.ftw\OpenWithProgids" "${KIND}"
  ; Can be fetched or made again.
  RMDir /r "${DATA}\runtime"
  RMDir /r "${DATA}\caches"
  ${If} $DropChats = 1
    RMDir /r "${DATA}\chats"
    RMDir /r "${DATA}\profiles"
    RMDir /r "${DATA}\logs"
    Delete "${DATA}\settings.json"
    Delete "${DATA}\jobs.json"
    Delete "${DATA}\app.lock"
  ${EndIf}
  ${If} $DropModels = 1
    RMDir /r "${DATA}\models"
  ${EndIf}
  RMDir "${DATA}"
SectionEnd
